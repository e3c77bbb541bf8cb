"""Cells: each in a process of its own, computed once, judged; pages count what they say."""

import json
from pathlib import Path

import pytest

from experiments.graphs.cell import Asked, answer
from experiments.graphs.page import gap_page, race_page, tiny_page
from experiments.graphs.race import RIVALS, line
from experiments.graphs.store import Store
from experiments.graphs.tiny import compared, tiny
from solvers.ir.errors import BayplanError, InvalidInput

CELL = Asked(graph="tree-20-s0@.4", solver="opt-intervals", work=0.2)


def test_a_cell_is_computed_once(tmp_path: Path) -> None:
    place = tmp_path / "cells.jsonl"
    row = Store(place).get(CELL)
    assert row["objective"] >= row["base"] > 0
    assert row["rss_mib"] > 20
    assert row["cpu_s"] > 0.1
    assert len(place.read_text().splitlines()) == 1
    changed = {**row, "objective": -1}
    place.write_text(json.dumps(changed) + "\n")
    assert Store(place).get(CELL)["objective"] == -1  # read, not computed again
    assert Store(place).known(Asked(graph=CELL.graph, solver="opt", work=0.2)) is None


def test_a_cell_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(BayplanError, match="is no name of a graph"):
        Store(tmp_path / "cells.jsonl").get(Asked(graph="tree-20-s0", solver="opt", work=0.2))
    with pytest.raises(InvalidInput, match="has no limit"):
        _ = Asked(graph="x", solver="opt").limits


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_another_unit_of_time_is_the_same_plan_and_gap(unit: float) -> None:
    """Times that are whole in both units: multiples of 10⁶, and of 1."""
    large = answer(Asked(graph="tree-20-s0@.4", solver="opt", work=0.2, unit=1e6))
    other = answer(Asked(graph="tree-20-s0@.4", solver="opt", work=0.2, unit=1e6 * unit))
    assert (large["gap"], large["overhead_gap"]) == (other["gap"], other["overhead_gap"])
    assert large["objective"] * unit == pytest.approx(other["objective"], rel=1e-12)


def test_the_race_tells_who_is_worse_and_by_how_much() -> None:
    row = {"base": 1000, "bound": 1010, "ops": 100, "status": "feasible", "wall_s": 1.0, "rss_mib": 200, "proven": True}
    rows = {"opt": {**row, "objective": 1030}, **{name: {**row, "objective": 1050} for name in RIVALS}}
    ours = line("tree-100-s0@.5", rows)
    assert (ours["opt"], ours["bound"], ours["worse"]) == (3.0, 1.0, -2.0)
    theirs = line("tree-100-s1@.5", {**rows, "checkmate": {**row, "objective": 1020}})
    alone = line("tree-100-s2@.5", {**rows, **{name: {**row, "objective": None} for name in RIVALS}})
    none = line("tree-100-s3@.5", {**rows, "opt": {**row, "objective": None}})
    text = race_page([ours, theirs, alone, none])
    assert "of the base: 2 (tree-100-s1@.5, tree-100-s3@.5); better by more than that: 1; the only one" in text


def test_tiny_graphs_are_met() -> None:
    found = [{"seed": seed, **compared(tiny(seed))} for seed in (2, 8, 17)]
    text = tiny_page(found)
    assert text.startswith("2 feasible graphs of 10 to 14 operators: the optimum of `opt-milp` met by 2")
    assert "UNKNOWN 0" in text
    assert "1 infeasible ones: called so 1" in text


def test_gaps_have_a_median() -> None:
    row = {"label": 0.1, "ops": 9, "status": "feasible", "objective": 110, "base": 100, "bound": 109, "gap": 1 / 110,
           "overhead_gap": 0.1, "wall_s": 1.0, "rss_mib": 100, "proven": True}  # fmt: skip
    text = gap_page([row, {**row, "overhead_gap": 0.2}, {**row, "overhead_gap": 0.4}], "position")
    assert text.startswith("Overhead gap: median 20.00 %, largest 40.00 %, of 3")
