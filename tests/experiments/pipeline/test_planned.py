"""Systems compared on one small pipeline: the gaps add up, stages are shared, the fastest system is found."""

from dataclasses import replace
from typing import Any

import pytest

from experiments.hardware import read_hardware
from experiments.pipeline import planned
from experiments.pipeline.figures import figures_of
from experiments.pipeline.planned import Comparison, Limit, Planned, compare_systems, rows_of
from experiments.pipeline.simulate import Step, pipeline_on, simulate
from experiments.shapes import read_shape
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import SYSTEMS, System
from solvers.partition.stages import Stages
from solvers.partition.steps import Unfit
from solvers.workload import Parallelism

PIPELINE = pipeline_on(
    read_shape("gpt-13b"),
    read_hardware("lynx-nvlink"),
    Parallelism(tensor=4, pipeline=4, microbatch=32, microbatches=6),
)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare_systems(PIPELINE, {name: SYSTEMS[name] for name in ("selective", "full", "adapipe", "lynx")})


def step_of(comparison: Comparison, name: str) -> Step:
    found = comparison.named(name)
    assert found is not None and isinstance(found.step, Step)
    return found.step


def test_a_step_is_told_by_figures_that_add_up(comparison: Comparison) -> None:
    """A stage's time is the step: forward, backward, what delays it, and what it waits for; for six microbatches."""
    step = step_of(comparison, "lynx")
    figures = figures_of(step)
    assert figures["samples_per_s"] == pytest.approx(6 * 32 * 1e6 / figures["makespan_us"])
    assert sum(figures["layers"]) == 40 and len(figures["layers"]) == 4
    for stage, one in enumerate(step.stages):
        busy = 6 * (one.forward_us + one.backward_us) + figures["critical_us"][stage]
        assert busy + figures["bubble_us"][stage] == figures["makespan_us"]
        assert figures["stall_hidden_us"][stage] + figures["critical_us"][stage] <= 6 * (
            one.critical_us + one.forward_hidden_us
        )
        assert figures["kept_us"][stage] == 6 * one.kept_us
        steady = 6 - (3 - stage)  # the last microbatches of the cool-down have no forward pass beside them
        assert figures["window_hidden_us"][stage] == 6 * one.backward_hidden_us + steady * one.forward_hidden_us
    assert figures["peak_bytes"] == [one.peak_bytes for one in step.memory]
    assert max(figures["peak_bytes"]) <= PIPELINE.budget_bytes


def test_what_does_not_fit_has_a_reason_only(comparison: Comparison) -> None:
    unfit = comparison.planned[0].step
    assert isinstance(unfit, Unfit)
    assert figures_of(unfit) == {"reason": unfit.reason}
    row = rows_of("e", comparison, {"x": 1})[0]
    assert (row.outcome, row.reason) == ("infeasible", unfit.reason)
    assert set(row.figures) == {"budget_bytes", "solve_time_s"}


def test_gaps_are_to_the_limit_of_all_systems(comparison: Comparison) -> None:
    """Bound 60 and base 40 for a step of 100: 40 of 100, and 40 of the 60 that it takes longer than the base."""
    step = step_of(comparison, "full")
    us = step.makespan_us
    told = replace(comparison, limit=Limit(us - 40, us - 60, None))
    row = rows_of("e", told, {"x": 1})[1]
    assert row.asked == {
        "policy": "full",
        "x": 1,
        "recompute": "full",
        "cut": step.system.cut,
        "hide": step.system.hide,
    }
    assert row.outcome == "ok" and row.reason is None
    assert (row.figures["bound_us"], row.figures["base_us"]) == (us - 40, us - 60)
    assert row.figures["gap"] == pytest.approx(40 / us)
    assert row.figures["overhead_gap"] == pytest.approx(40 / 60)
    met = rows_of("e", replace(comparison, limit=Limit(us, us, None)), {})[1].figures
    assert (met["gap"], met["overhead_gap"]) == (0, 0)
    unknown = rows_of("e", replace(comparison, limit=Limit(None, None, "no")), {})[1].figures
    assert "gap" not in unknown and unknown["bound_us"] is None


def test_no_system_beats_the_limit(comparison: Comparison) -> None:
    limit = comparison.limit
    assert limit.bound_us is not None and limit.base_us is not None and limit.reason is None
    steps = [one.step.makespan_us for one in comparison.planned if isinstance(one.step, Step)]
    assert limit.base_us <= limit.bound_us <= min(steps)


def test_the_fastest_system_is_found_of_equals_the_last(comparison: Comparison) -> None:
    full, lynx = comparison.named("full"), comparison.named("lynx")
    assert full is not None and lynx is not None
    speeds = {one.name: one.step.samples_per_s for one in comparison.planned if isinstance(one.step, Step)}
    fastest = comparison.named(None)
    assert fastest is not None and speeds[fastest.name] == max(speeds.values()) > min(speeds.values())
    assert comparison.named("selective") is None  # it has no step
    assert comparison.named("nobody") is None
    twice = replace(comparison, planned=(full, Planned("again", full.step, 0.0)))
    found = twice.named(None)
    assert found is not None and found.name == "again"


def test_systems_of_one_policy_share_their_stages_and_the_limit_hides_most(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[list[str]] = []
    limits: list[str] = []
    whole = simulate

    def simulated(pipeline: Pipeline, system: System, shared: dict[str, Stages]) -> Step | Unfit:
        known.append(list(shared))
        return whole(pipeline, system, shared)

    def limited(pipeline: object, hide: str) -> Limit:
        limits.append(hide)
        return Limit(None, None, None)

    monkeypatch.setattr(planned, "simulate", simulated)
    monkeypatch.setattr(planned, "_limit", limited)
    systems: dict[str, Any] = {
        "a": System(policy="heu", cut="balanced", hide="cooldown"),
        "b": System(policy="full", cut="balanced", hide="cooldown"),
        "c": System(policy="heu", cut="dp", hide="all"),
    }
    compare_systems(PIPELINE, systems)
    assert known == [[], ["heu"], ["heu", "full"]]
    compare_systems(PIPELINE, {name: systems[name] for name in "ab"})
    assert limits == ["all", "cooldown"]


def test_a_stages_groups_name_each_operator_once(comparison: Comparison) -> None:
    """Every needed operator is kept or done again somewhere; layers of groups are the stage's."""
    figures = rows_of("e", comparison, {})[-1].figures
    for number, stage in enumerate(figures["stages"]):
        problem = PIPELINE.heu_problem(number, stage["layers"])
        needed = {op.name for op in problem.ops if op.needed}
        assert sum(group["layers"] for group in stage["groups"]) == stage["layers"] == figures["layers"][number]
        for group in stage["groups"]:
            names = [name for place, found in group.items() if place != "layers" for name in found]
            assert len(names) == len(set(names)) and needed <= set(names)
        assert stage["critical_us"] >= stage["least_critical_us"]
