"""The rivals' command: rows and page, and one sentence for what cannot be asked of scripts."""

from pathlib import Path

import pytest

from experiments.elastic.rivals.__main__ import main
from experiments.elastic.rivals.page import page, row_of
from experiments.elastic.rivals.runs import Loss, Ran
from experiments.elastic.rivals.stage import Asked

ASKED = Asked(job="tests.runtime.elastic.jobs:small", nodes=4, pipeline=2, steps=2, every=1, hang_s=5, kills=())


def of(losses: dict[int, float], replicas: dict[int, int], failures: list[Loss]) -> Ran:
    return Ran(losses, 2e6, failures, 1, replicas)


def test_the_page_has_what_was_lost_and_what_each_cannot_do() -> None:
    whole = of({0: 1.0, 1: 2.0}, {}, [])
    torchrun = row_of("torchrun", ASKED, whole, of({0: 1.0, 1: 2.0}, {}, [Loss("kill", 1, 3_500_000, 4)]))
    torchft = row_of("torchft", ASKED, whole, of({0: 1.0, 1: 2.5}, {0: 2, 1: 1}, [Loss("stop", 1, None, 0)]))
    text = page([torchrun, torchft, row_of("torchft", ASKED, None, None, "not installed here: pip install torchft")])
    assert "| torchrun | SIGKILL in step 1 | 3.5 | 4 | 2.00 | yes, all bits | all |" in text
    # One of two replicas was away for a step: its half of the eight microbatches trained nobody.
    assert "| torchft | SIGSTOP in step 1 | – | 0 | 2.00 | no, off by up to 0.25 | 4 missing |" in text
    assert "| torchft | not installed here: pip install torchft | – |" in text
    assert "keep a survivor" in text
    assert torchft.figures["equal_losses"] is False
    assert torchft.provenance.startswith("executed on 4 one-thread processes")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nodes", "5"], "--nodes is 5, which pipelines of 2 do not divide"),
        (["--steps", "0"], "--steps is 0: give at least 1"),
        (["--kills", "1@2.vote"], "--kills names vote:1, but scripts fail in forward or backward only"),
        (["--kills", "1@99"], "--kills names node 1 in step 99, but there are 8 nodes and 26 steps, both from 0"),
        (["--kills", "fresh@2"], "--kills names joins"),
        (["--kills", "now"], "cannot read the kill 'now'"),
        (["--hang-s", "0"], "--hang-s is 0.0: give at least 0.5"),
        (["--job", "nowhere:job"], "the job 'nowhere:job' cannot be loaded"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "out"), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
