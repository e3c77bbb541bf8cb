"""A grid of clusters: impossible cells are rows, a second run computes nothing again, an interrupted one goes on."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.cluster import compare
from experiments.cluster.planning import Answer, answers
from experiments.compare import main
from experiments.rows import read_rows
from solvers.ir.replan import ReplanProblem
from solvers.ir.solution import Limits

WORDS = ["experiment=ft_scale", "-m", "grid=3x2x8,4x2x8", "lost=2,6", "head=true", "draws=1", "first_seed=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "run"
    assert main([*WORDS, f"run_dir={path}"]) == 1  # one cell contradicts itself
    return path


def test_every_cell_has_its_rows(folder: Path) -> None:
    rows = read_rows(folder / "rows.jsonl")
    found = {(row.asked["grid"], row.asked["lost"], row.asked["policy"]): row.outcome for row in rows}
    outcomes = {("3x2x8", 2): "ok", ("4x2x8", 2): "ok", ("4x2x8", 6): "infeasible"}
    assert found.pop(("3x2x8", 6, "all")) == "error"
    assert found == {
        (*cell, planner): outcome for cell, outcome in outcomes.items() for planner in ("algorithm1", "exact-replan")
    }
    unplanned = next(row for row in rows if row.outcome == "infeasible")
    assert "have no holder alive: load a checkpoint" in (unplanned.reason or "")
    fault = next(row for row in rows if row.outcome == "error")
    assert fault.reason == "lost is 6, but the grid has 6 nodes: leave at least one alive"


def test_one_table_of_all_plans(folder: Path) -> None:
    text = (folder / "table.txt").read_text()
    assert text.startswith("Plans: all cells") and text.count("algorithm1") == 3


def test_a_second_run_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / "rows.jsonl").read_text()
    asked: list[int] = []

    def counted(problem: ReplanProblem, limits: Limits) -> Sequence[Answer]:
        asked.append(problem.nodes)
        return answers(problem, limits)

    monkeypatch.setattr(compare, "answers", counted)
    assert main([*WORDS, f"run_dir={folder}"]) == 1
    assert asked == []
    assert (folder / "rows.jsonl").read_text() == before
    assert main([*WORDS, "restart_s=9", f"run_dir={folder}", "force=true"]) == 1
    assert asked == [4, 6, 2]


def test_an_interrupted_sweep_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def once(problem: ReplanProblem, limits: Limits) -> Sequence[Answer]:
        if problem.nodes == 6:
            raise KeyboardInterrupt
        return answers(problem, limits)

    monkeypatch.setattr(compare, "answers", once)
    assert main([*WORDS, "lost=2", f"run_dir={tmp_path}"]) == 130
    assert "interrupted: what was done so far is in" in capsys.readouterr().err
    assert {row.asked["grid"] for row in read_rows(tmp_path / "rows.jsonl")} == {"3x2x8"}
    monkeypatch.setattr(compare, "answers", answers)
    assert main([*WORDS, "lost=2", f"run_dir={tmp_path}"]) == 0
    assert {row.asked["grid"] for row in read_rows(tmp_path / "rows.jsonl")} == {"3x2x8", "4x2x8"}


def test_a_sweep_may_live_too(tmp_path: Path) -> None:
    words = ["experiment=ft_32", "-m", "restart_s=8.2,300", "hours=2", "seeds=2", "workers=1", "plots=false"]
    names = ["always-replan", "always-reroute", "symmetric", "bayplan", "checkpoint", "recycle"]
    assert main([*words, *(f"~policies.{name}" for name in names), f"run_dir={tmp_path}"]) == 0
    rows = read_rows(tmp_path / "rows.jsonl")
    assert {(row.asked["restart_s"], row.asked["policy"]) for row in rows} == {
        (restart_s, policy) for restart_s in (8.2, 300.0) for policy in ("chameleon", "oobleck")
    }
    slow = {
        row.asked["restart_s"]: row.figures["samples_per_s"]["mean"] for row in rows if row.asked["policy"] == "oobleck"
    }
    assert slow[300.0] < slow[8.2]
    text = (tmp_path / "table.txt").read_text()
    assert "Lives: restart_s 8.2" in text and "Lives: restart_s 300" in text
