"""Tables of rows written down here, cell by cell."""

from collections.abc import Mapping
from typing import Any, Literal

from experiments.cluster.tables import LIVES, PLANS, cell_tables, lives_table, plans_table
from solvers.ir import Row

Outcome = Literal["ok", "infeasible", "error"]
SPREAD = {"p5": 1.0, "p50": 12.344, "p95": 1234.5, "mean": 20.0, "low": 18.5, "high": 21.5}
OVER = {"p5": 0.9, "p50": 1.05, "p95": 1.25, "mean": 1.1, "low": 1.04, "high": 1.16}
LIFE = {
    "samples_per_s": SPREAD,
    "first_over": OVER,
    "shares": {"training": 0.9, "transition": 0.0555, "lost": 0.02, "stopped": 0.0},
    "decisions": {"replan": 3.25, "reroute": 0.0, "stop": 1.0},
    "decision_s": 0.0125,
}
PLAN = {
    "statuses": ["feasible", "optimal"],
    "objective_us": 1_234_567,
    "gap": 0.0123,
    "cold_s": 0.5,
    "longest_s": 1.25,
    "processor_s": 0.75,
    "again_s": None,
    "policies": ["dynamic", "reroute"],
}


def row(
    what: str, policy: str, figures: dict[str, Any], outcome: Outcome = "ok", cell: Mapping[str, object] | None = None
) -> Row:
    return Row(
        experiment="e",
        asked={"what": what, "policy": policy, **(cell or {})},
        outcome=outcome,
        figures=figures,
        provenance="by hand",
        commit=None,
        seed=0,
    )


def test_a_policys_lives_are_one_line() -> None:
    """Half of the interval from 18.5 to 21.5 is 1.5; decisions that never happen are left out."""
    table = lives_table([row(LIVES, "mine", LIFE), row(PLANS, "not this", PLAN)], "32 nodes")
    assert table.title == "Lives: 32 nodes"
    (line,) = table.body
    assert dict(zip(table.head[:6], line, strict=False)) == {
        "policy": "mine",
        "samples/s: p5": "1.00",
        "p50": "12.34",
        "p95": "1,234.50",
        "mean ± 95 %": "20.00 ± 1.50",
        "first over: p5": "0.900",
    }
    assert line[6:10] == ("1.050", "1.250", "1.100", "1.040 to 1.160")
    assert table.head[6:10] == ("p50", "p95", "mean", "95 %")
    assert dict(zip(table.head[10:], line[10:], strict=True)) == {
        "training": "90.0 %",
        "transition": "5.5 %",  # 5.55 lies a little below itself
        "lost": "2.0 %",
        "stopped": "0.0 %",
        "decisions": "3.2 replan, 1.0 stop",
        "longest (ms)": "12.5",
    }


def test_one_life_has_no_interval_and_a_policy_without_ratio_none() -> None:
    alone: dict[str, Any] = {
        **LIFE,
        "samples_per_s": {**SPREAD, "low": None, "high": None},
        "first_over": dict.fromkeys(OVER),
        "decisions": {},
    }
    (line,) = lives_table([row(LIVES, "mine", alone)], "").body
    assert line[4] == "20.00"
    assert line[5:10] == ("–",) * 5
    assert line[14] == "–"
    (failed,) = lives_table([row(LIVES, "mine", {}, "error")], "").body
    assert failed == ("mine", *["–"] * 15)


def test_a_planners_cell_is_one_line_in_milliseconds() -> None:
    table = plans_table(
        [row(PLANS, "exact", PLAN, cell={"grid": "8x4", "head": True}), row(LIVES, "no", LIFE)], ["grid", "head"], "x"
    )
    assert table.title == "Plans: x"
    (line,) = table.body
    assert dict(zip(table.head, line, strict=True)) == {
        "grid": "8x4",
        "head": "True",
        "planner": "exact",
        "status": "feasible, optimal",
        "objective (ms)": "1,234.6",
        "gap": "1.23 %",
        "cold (ms)": "500.0",
        "longest (ms)": "1,250.0",
        "processor (ms)": "750.0",
        "again (ms)": "–",
        "decides": "dynamic, reroute",
    }


def test_a_cell_without_plan_or_with_an_error_says_so() -> None:
    bare = {**PLAN, "statuses": ["infeasible"], "objective_us": None, "gap": None, "policies": []}
    infeasible, failed = plans_table(
        [row(PLANS, "exact", bare, "infeasible"), row(PLANS, "all", {}, "error")], [], ""
    ).body
    assert infeasible[:4] == ("exact", "infeasible", "–", "–") and infeasible[-1] == "–"
    assert failed == ("all", "error", *["–"] * 7)


def test_a_sweep_has_a_table_of_plans_and_one_of_lives_for_each_cell() -> None:
    rows = [
        row(LIVES, "a", LIFE, cell={"cluster.lost": 2, "hours": 8.5}),
        row(LIVES, "b", LIFE, cell={"cluster.lost": 2, "hours": 8.5}),
        row(PLANS, "c", PLAN, cell={"cluster.lost": 2, "hours": 8.5}),
        row(LIVES, "a", LIFE, cell={"cluster.lost": 3, "hours": 8.5}),
    ]
    tables = cell_tables(rows, ["cluster.lost", "hours"])
    assert [(table.title, [line[0] for line in table.body]) for table in tables] == [
        ("Plans: all cells", ["2"]),
        ("Lives: lost 2, hours 8.5", ["a", "b"]),
        ("Lives: lost 3, hours 8.5", ["a"]),
    ]
    assert [table.title for table in cell_tables(rows[:2], ["hours"])] == ["Lives: hours 8.5"]
    assert [table.title for table in cell_tables(rows[2:3], ["hours"])] == ["Plans: all cells"]
