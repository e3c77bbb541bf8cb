"""Hydra's command line: what is read, and the one sentence for what is not."""

from pathlib import Path

import pytest

from experiments.flags import read_flags
from solvers.ir import InvalidInput


def test_flags_stand_anywhere_among_the_overrides() -> None:
    flags = read_flags(["a=1", "-m", "b=2", "--cfg"][:3])
    assert flags.words == ["a=1", "b=2"] and flags.sweeps and not flags.shows
    assert read_flags(["hydra.mode=MULTIRUN"]).sweeps
    for words in (["-h"], ["--hydra-help"], ["-c", "job", "--resolve"], ["--info"], ["-sc", "query=bash"]):
        assert read_flags(words).shows, words


def test_a_folder_of_ones_own_becomes_an_override(tmp_path: Path) -> None:
    assert read_flags(["-cd", str(tmp_path)]).words == [f"hydra.searchpath=['file://{tmp_path}']"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--bad"], "there is no flag '--bad': write settings as key=value; flags are --cfg"),
        (["--cfg", "x"], "invalid choice: 'x'"),
        (["--cfg", "job", "-m"], "give one only"),
        (["--resolve"], "belongs to --cfg or --help"),
        (["--config-name", "x"], "choose experiment=NAME"),
        (["--config-dir", "/nowhere/at/all"], "is no folder"),
        (["--config-dir", ".", "hydra.searchpath=[]"], "are both given"),
        (["--experimental-rerun", "x.pickle"], "runs code from a pickle"),
    ],
)
def test_every_mistake_is_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_flags(words)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
