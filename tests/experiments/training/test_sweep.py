"""Sweeps: cells in processes of their own, plans that help their neighbours, nothing computed twice."""

from pathlib import Path

import msgspec
import pytest

from experiments.compare import main
from experiments.figures import Figures, figures_of
from experiments.pictures import Line
from experiments.rows import read_rows
from experiments.sweep_rows import monotony, sweep_lines
from runtime.device.native import why_missing
from solvers.ir import InvalidInput, Row
from tests.experiments.tiny import tiny_hardware, tiny_overrides

BUILT = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
LINK = tiny_hardware("sim-small").links[0].bytes_per_s / 1e9


def sweep(folder: Path) -> list[Row]:
    """Two budgets, one of them too small, and two links."""
    words = ["experiment=demo_sweep", "-m", *tiny_overrides(folder), f"run_dir={folder / 'run'}"]
    axes = ["problem.budget_fraction=0.2,0.6", f"hardware.link_gb_per_s={LINK / 2},{LINK}"]
    assert main([*words, *axes]) == 0
    return read_rows(folder / "run" / "rows.jsonl")


@BUILT
def test_a_grid_becomes_rows_a_table_and_a_picture_and_goes_on_where_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = sweep(tmp_path)
    printed = capsys.readouterr().out
    assert len(rows) == 4 * 3  # the unlimited run and two solvers in each cell

    small = [row for row in rows if row.asked["problem.budget_fraction"] == 0.2]
    assert [row.outcome for row in small] == ["ok", "infeasible", "infeasible"] * 2
    assert all(figures_of(row.figures).least_budget_bytes for row in small if row.outcome == "infeasible")

    enough = [row for row in rows if row.asked["problem.budget_fraction"] == 0.6]
    for row in enough:
        found = figures_of(row.figures)
        assert row.outcome == "ok" and found.equal_losses
        assert found.budget_bytes is None or (found.peak_bytes or 0) <= found.budget_bytes

    slow, fast = (figures_of(row.figures) for row in enough if row.asked["policy"] == "milp-swap")
    assert slow.objective_us is not None and fast.objective_us is not None
    assert slow.objective_us >= fast.objective_us
    assert slow.step_us is not None and fast.step_us is not None
    assert slow.step_us >= fast.step_us

    assert "milp-swap: step time over unlimited" in printed
    assert "never falls" in printed
    for name in ("table.txt", "table.md", "sweep.svg", "sweep.png"):
        assert (tmp_path / "run" / name).stat().st_size > 300

    marks = sorted((tmp_path / "run" / "cells").glob("*/done"))
    times = [mark.stat().st_mtime_ns for mark in marks]
    marks[-1].unlink()  # as if the sweep had been stopped in its last cell
    assert [row.asked for row in sweep(tmp_path)] == [row.asked for row in rows]
    assert [mark.stat().st_mtime_ns for mark in marks][:-1] == times[:-1]
    assert marks[-1].exists()


FATAL = "import os\ndef create(device):\n    os._exit(9)\n"
ENDLESS = "import time\ndef create(device):\n    time.sleep(600)\n"


@BUILT
def test_a_cell_that_dies_or_hangs_is_a_row_and_the_sweep_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fatal.py").write_text(FATAL)
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "faulty.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["-m", "model=own", "model.factory='fatal:create','faulty:create'", "run_dir=run"]) == 1
    fatal, faulty = read_rows(Path("run/rows.jsonl"))
    assert (fatal.outcome, faulty.outcome) == ("error", "error")
    assert fatal.reason is not None and "ended with 9" in fatal.reason
    assert faulty.reason is not None and "has no 'create'" in faulty.reason
    printed = capsys.readouterr().out
    assert "has no 'create'" in printed and "2 of 2 cells failed, written to run" in printed

    assert main(["-m", "model=own", "model.factory=endless:create", "cell_timeout_s=1", "run_dir=late"]) == 1
    (late,) = read_rows(Path("late/rows.jsonl"))
    assert late.outcome == "timeout"
    assert late.reason == "the cell took longer than 1 s"


def test_a_bad_cell_refuses_the_whole_sweep_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="outside 1…"):
        main(["-m", "steps=0,1"])
    with pytest.raises(InvalidInput, match="give one of each"):
        main(["-m", "run_dir=a,b"])
    assert list(tmp_path.iterdir()) == []


def row(budget: int, link: int, objective: int | None, policy: str = "milp-swap") -> Row:
    figures = Figures(
        status="infeasible" if objective is None else "feasible",
        objective_us=objective,
        bound_us=None if objective is None else 1.0,
        step_us=objective,
        unlimited_us=10.0,
    )
    return Row(
        experiment="e",
        asked={"policy": policy, "budget_bytes": budget, "link_bytes_per_s": link, "budget": budget, "x.link": link},
        outcome="infeasible" if objective is None else "ok",
        figures=figures.to_raw(),
        provenance="",
        commit=None,
        seed=0,
    )


def test_step_times_that_fall_as_the_budget_shrinks_are_told() -> None:
    assert "never falls" in monotony([row(1, 1, None), row(2, 1, 30), row(1, 2, 30), row(2, 2, 20)])
    assert "falls from 31 µs at 2 bytes" in monotony([row(1, 2, 30), row(2, 2, 31)])
    assert "falls from 31 µs" in monotony([row(2, 1, 30), row(2, 2, 31)])
    assert "falls from inf µs" in monotony([row(1, 1, 30), row(2, 1, None)])
    # No plan within the limits says nothing about the optimum.
    unfinished = row(1, 1, 30)
    figures = {key: value for key, value in unfinished.figures.items() if key != "objective_us"}
    assert "never falls" in monotony([msgspec.structs.replace(unfinished, figures=figures), row(2, 1, 40)])
    # Less memory and a faster link: neither is harder than the other.
    assert "never falls" in monotony([row(1, 2, 30), row(2, 1, 31)])


def test_lines_are_grouped_by_the_second_axis() -> None:
    rows = [row(2, 1, 20), row(1, 1, 30), row(1, 2, 25, "greedy-swap"), row(3, 1, None)]
    assert sweep_lines(rows, ["budget", "x.link"]) == [
        Line("milp-swap", "link 1", ((1.0, 3.0), (2.0, 2.0))),
        Line("greedy-swap", "link 2", ((1.0, 2.5),)),
    ]
