"""Programs started by `python -m` refuse bad input in one line, with exit code 2 and no traceback."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from experiments import rank_profiles
from experiments.gpu import probes, race, traces

GPU = [probes.main, race.main, traces.main]


def refused(main: Callable[[list[str]], int], words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that it says."""
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("main", GPU)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_machine_without_a_gpu_is_told_to_rehearse(
    main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "device cuda is not available" in refused(main, [str(tmp_path / "x.json")], capsys)


@pytest.mark.parametrize("main", GPU)
def test_a_result_that_is_a_folder_is_refused(
    main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"OUT {tmp_path} is a folder" in refused(main, [str(tmp_path), "--device", "sim"], capsys)


@pytest.mark.parametrize("text", ["", "[]", '{"races": 5}', '{"format": "bayplan-race/1"}'])
def test_a_race_file_that_is_none_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "race.json").write_text(text)
    words = [str(tmp_path / "race.json"), "--device", "sim", "--few", "--seconds", "1e-9"]
    assert "is no file of races" in refused(race.main, words, capsys)
    assert (tmp_path / "race.json").read_text() == text


def test_rank_profiles_refuse_a_file_for_a_folder_before_they_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_profiles, "CASES", ())
    (tmp_path / "file").write_text("")
    assert "the system refused" in refused(rank_profiles.main, ["--out", str(tmp_path / "file")], capsys)


@pytest.mark.parametrize("case", ["x", "7", '{"shap": "llama-2-7b"}', "[]"])
def test_a_case_that_is_none_is_refused(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "give JSON, as in" in refused(rank_profiles.main, ["--case", case], capsys)
