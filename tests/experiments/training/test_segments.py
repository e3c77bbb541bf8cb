"""Comparisons on a device whose allocator holds segments: plans are made for these, and again for less."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from experiments import execution
from experiments.compare import main
from experiments.figures import figures_of
from experiments.rows import read_rows
from runtime.device.native import why_missing
from runtime.swap import Executed, NoSegment, SwapExecutor
from solvers.check import check_plan
from solvers.ir.codec import read_plan, read_problem

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
T = TypeVar("T")


@pytest.mark.parametrize(("allocator", "share", "code"), [("caching", 0.8, 0), ("expandable", 0.3, 1)])
def test_plans_are_made_for_segments_where_the_device_has_these(
    allocator: str, share: float, code: int, tmp_path: Path
) -> None:
    """Its capacity is one of segments: a plan in bytes would be refused at the operator that finds none."""
    model = ("model.layers=3", "model.width=256", "model.context=128", "model.batch=8", "steps=2", "plots=false")
    words = [*model, "solver=greedy-swap", "baselines=[]", f"allocator={allocator}", f"problem.budget_fraction={share}"]
    assert main([*words, f"run_dir={tmp_path / 'run'}"]) == code
    (row,) = read_rows(tmp_path / "run" / "rows.jsonl")
    found = figures_of(row.figures)
    assert row.asked["allocator"] == allocator and f"allocator {allocator}" in row.provenance
    if code == 0:
        assert row.outcome == "ok" and found.equal_losses and found.equal_gradients and found.as_planned
        assert found.swapped_bytes
    else:
        assert row.outcome == "infeasible" and found.least_budget_bytes is not None
        assert found.least_budget_bytes > row.asked["budget_bytes"]
        assert row.reason is not None and f"of segments that plan needs {found.least_budget_bytes} bytes" in row.reason
    assert f"Allocator: {allocator} (modelled" in (tmp_path / "run" / "table.md").read_text()


def test_the_least_budget_of_segments_is_one_in_which_a_plan_is_found(tmp_path: Path) -> None:
    """That of the plan for the least bytes, where the budget does not even suffice in bytes."""
    model = ("model.layers=3", "model.width=256", "model.context=128", "model.batch=8", "steps=2", "plots=false")
    words = [*model, "solver=greedy-swap", "baselines=[]", "allocator=caching"]
    assert main([*words, "problem.budget_fraction=0.3", f"run_dir={tmp_path / 'less'}"]) == 1
    least = figures_of(read_rows(tmp_path / "less" / "rows.jsonl")[0].figures).least_budget_bytes
    fraction = "problem.budget_fraction=null"
    assert main([*words, f"problem.budget_bytes={least}", fraction, f"run_dir={tmp_path / 'enough'}"]) == 0


class Elsewhere(SwapExecutor):
    """Its first instance's blocks lie where no segment is found for all that the plan asks for."""

    made = 0

    def run(self, step: Callable[[], T]) -> Executed[T]:
        Elsewhere.made += 1
        if Elsewhere.made == 1:
            raise NoSegment("operator 7 finds no segment")
        return super().run(step)


def test_a_plan_that_finds_no_segment_is_made_for_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are those of the plan that trained."""
    monkeypatch.setattr(execution, "SwapExecutor", Elsewhere)
    monkeypatch.setattr(Elsewhere, "made", 0)
    model = ("model.layers=3", "model.width=256", "model.context=128", "model.batch=8", "steps=2", "plots=false")
    words = [*model, "solver=greedy-swap", "baselines=[]", "allocator=caching", "problem.budget_fraction=0.8"]
    assert main([*words, f"run_dir={tmp_path / 'run'}"]) == 0
    (row,) = read_rows(tmp_path / "run" / "rows.jsonl")
    found = figures_of(row.figures)
    assert row.outcome == "ok" and found.equal_losses and Elsewhere.made == 3
    problem, _ = read_problem(tmp_path / "run" / "problem.json")
    judged = check_plan(problem, read_plan(tmp_path / "run" / "plans" / "greedy-swap.json"))
    assert not judged.violations and judged.objective_us == found.objective_us
