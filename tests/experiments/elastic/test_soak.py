"""Failures at many moments: the script of a soak, its counts, its page; five failures live, hundreds in `make soak`."""

import re
from pathlib import Path

import pytest

from experiments.elastic.soak import MOMENTS, Soak, injected, main, missing, page, script, soaked
from experiments.rows import read_rows
from runtime.elastic import parse_kills
from tests.experiments.elastic.events import log

SMALL = Soak(job="tests.runtime.elastic.jobs:small", timeout_s=60, hang_s=60, stops=False)


@pytest.mark.parametrize("seed", range(20))
def test_a_script_names_processes_that_are_there_and_every_moment(seed: int) -> None:
    injections, joins = parse_kills(script(seed, 20, Soak()))
    assert {one.moment for one in injections} == set(MOMENTS)
    assert sum(one.how == "stop" for one in injections) in (1, 2)
    there, following = set(range(6)), 6
    for one in injections:
        assert one.node in there
        if one.moment != "unheard":
            there = (there - {one.node}) | {following}
            following += 1
    assert sum(map(len, joins.values())) == following - 6  # as many come as go


def test_victims_have_roles_of_the_plan_at_that_moment() -> None:
    # Node 1 ends a pipeline of two, node 2 stands in the middle of one of three.
    assert injected(log()) == [("forward", "last stage", "kill"), ("transfer", "middle stage", "kill")]


@pytest.mark.slow
def test_five_failures_lose_nothing() -> None:
    row = soaked(0, 5, SMALL)
    assert row.outcome == "ok", row.reason
    assert [moment for moment, _, _ in row.figures["injections"]] == list(MOMENTS[:5])
    assert missing([row], 5) != []  # other moments are for longer ones
    text = page([row])
    assert re.search(r"\| forward \| .* \| 1 \|", text)
    assert "| faults | none |" in text


def test_a_soak_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made rows are not made again; what is missing, and faults, are exit code 1."""
    kept = Path(__file__).parents[3] / "experiments" / "results" / "elastic" / "soak.jsonl"
    (tmp_path / "soak.jsonl").write_text("".join(f"{line}\n" for line in kept.read_text().splitlines()[:2]))
    assert main(["--out", str(tmp_path), "--seeds", "2", "--count", "20"]) == 0
    assert main(["--out", str(tmp_path), "--seeds", "2", "--count", "200"]) == 1
    assert "<table" not in (tmp_path / "soak.md").read_text()
    assert len(read_rows(tmp_path / "soak.jsonl")) == 2


def test_other_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "none"), "--seeds", "0"]) == 2
    assert "--seeds is 0: give at least 1" in capsys.readouterr().err


@pytest.mark.soak
def test_hundreds_of_failures(tmp_path: Path) -> None:
    """Moments and roles are asserted by the command itself."""
    assert main(["--out", str(tmp_path), "--seeds", "10", "--count", "20"]) == 0
