"""The results that are kept: their tables are their rows', and their rows keep the demo's promises."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from experiments.figures import Figures, figures_of
from experiments.rows import read_rows
from experiments.sweep_rows import monotony
from experiments.tables import policy_tables, sweep_tables, to_markdown

RESULTS = Path(__file__).parent.parent.parent / "experiments" / "results"
DEMO = read_rows(RESULTS / "demo" / "rows.jsonl")
SWEEP = read_rows(RESULTS / "demo_sweep" / "rows.jsonl")
AXES = ["problem.budget_fraction", "hardware.link_gb_per_s"]


def demo(policy: str) -> Figures:
    (row,) = (row for row in DEMO if row.asked["policy"] == policy)
    return figures_of(row.figures)


def test_tables_are_what_the_rows_say() -> None:
    assert to_markdown(policy_tables(DEMO)) == (RESULTS / "demo" / "table.md").read_text()
    sweep = to_markdown(sweep_tables(SWEEP, AXES, monotony(SWEEP)))
    assert sweep == (RESULTS / "demo_sweep" / "table.md").read_text()


@pytest.mark.parametrize("folder", ["demo", "demo_sweep"])
def test_a_result_states_its_commit_and_has_whole_pictures(folder: str) -> None:
    rows = read_rows(RESULTS / folder / "rows.jsonl")
    (commit,) = {row.commit for row in rows}
    assert commit is not None and not commit.endswith("+")  # nothing uncommitted took part
    assert commit in (RESULTS / folder / "README.md").read_text()
    for picture in (RESULTS / folder).glob("*.svg"):
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_the_demo_fails_without_a_plan_and_trains_with_one() -> None:
    assert {row.asked["policy"]: row.outcome for row in DEMO} == {
        "unlimited": "ok",
        "none": "out-of-memory",
        "recompute": "ok",
        "greedy-swap": "ok",
        "milp-swap": "ok",
        "joint": "ok",
    }
    for policy in ("recompute", "greedy-swap", "milp-swap", "joint"):
        found = demo(policy)
        assert found.equal_losses and found.equal_parameters and found.equal_gradients
        assert found.peak_bytes is not None and found.budget_bytes is not None
        assert found.peak_bytes <= found.budget_bytes
    for policy in ("greedy-swap", "milp-swap", "joint"):
        assert abs(demo(policy).deviation or 1) < 0.02


def test_the_demos_optimal_plan_stalls_enough_to_tell_it_from_the_heuristics() -> None:
    optimal, greedy = demo("milp-swap"), demo("greedy-swap")
    assert optimal.stall_share is not None and 0.02 <= optimal.stall_share <= 0.10
    assert greedy.stall_share is not None and greedy.stall_share > optimal.stall_share


def test_the_demos_joint_plan_beats_both_techniques_alone() -> None:
    joint = demo("joint").step_us
    assert joint is not None
    assert all(joint < (demo(policy).step_us or 0) for policy in ("recompute", "greedy-swap", "milp-swap"))


def test_the_sweep_is_complete_within_budgets_and_monotone() -> None:
    assert len({tuple(row.asked[axis] for axis in AXES) for row in SWEEP}) == 28
    for row in SWEEP:
        found = figures_of(row.figures)
        if row.asked[AXES[0]] == 0.3 and row.asked["policy"] != "unlimited":
            assert row.outcome == "infeasible"
            assert (found.least_budget_bytes or 0) > (found.budget_bytes or 0)
            continue
        assert row.outcome == "ok" and found.equal_losses
        assert found.budget_bytes is None or (found.peak_bytes or 0) <= found.budget_bytes
    assert "never falls" in monotony(SWEEP)
