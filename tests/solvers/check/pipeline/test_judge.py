"""The judge of whole steps: a story by hand, mutants of valid plans, and the recurrence told by someone else."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.check.pipeline.base import base_range_us
from solvers.check.pipeline.judge import judge_pipeline, times_of
from solvers.check.pipeline.least import is_surely_feasible, least_budget_bytes
from solvers.check.pipeline.step import StageTimes, passes_of, step_us
from solvers.ir import (
    LayerGroup,
    LayerOp,
    Limits,
    PipelinePlan,
    PipelineProblem,
    PipelineStage,
    Solution,
    StagePolicies,
    Window,
)
from solvers.ir.codec import plan_file
from solvers.partition.bayplan import Bayplan
from solvers.timeline.pipeline.inputs import Discipline, Hide
from solvers.timeline.pipeline.order import Order, stage_order
from solvers.timeline.pipeline.times import pipeline
from tests.solvers.pipeline.brute_force import least_budget, optimum, random_problem
from tests.strategies import pipeline_plans, pipeline_problems

STAGE = PipelineStage(budget_bytes=100, static_bytes=10, layer_static_bytes=5, extra_us=(0, 0))
STORY = PipelineProblem(
    name="two stages",
    layers=2,
    microbatches=2,
    order="1f1b",
    p2p_us=0,
    layer_input_bytes=1,
    ops=(
        LayerOp(name="a", time_us=3, output_bytes=10, inputs=(), comm=False, needed=True),
        LayerOp(name="b", time_us=7, output_bytes=20, inputs=(0,), comm=False, needed=True),
    ),
    windows=(
        Window(name="f", phase="forward", time_us=3),
        Window(name="b", phase="backward", time_us=7),
    ),
    backward_us=20,
    stages=(STAGE, STAGE),
)
KEEP = StagePolicies(groups=(LayerGroup(layers=1, stored=(0, 1), recomputed=()),))
AGAIN = StagePolicies(groups=(LayerGroup(layers=1, stored=(), recomputed=((0, 2), (1, 2))),))
PLAN = PipelinePlan(layers=(1, 1), stages=(KEEP, KEEP), hide_in_stalls="none")


def objective(plan: PipelinePlan, problem: PipelineProblem = STORY) -> int | None:
    verdict = judge_pipeline(problem, plan)
    assert verdict.violations == ()
    return verdict.objective_us


def test_a_step_by_hand() -> None:
    """F takes 10, B 20: (2 + 1) · 30. Stage 0 goes back at 40 and, its second gradient being there at 70, at 70.

    Recomputing both ops there adds 10 before each: 50 to 70, and 80 to 100. Ahead of the gradients nothing is added
    (`all`): from 20 to 30, and from 60 to 70. In the cool-down alone the second ends at 70 + 10, too.
    """
    assert objective(PLAN) == 90
    exposed = replace(PLAN, stages=(AGAIN, KEEP))
    assert objective(exposed) == 100
    assert objective(replace(exposed, hide_in_stalls="cooldown")) == 100
    assert objective(replace(exposed, hide_in_stalls="all")) == 90


def test_windows_of_the_last_layer() -> None:
    """Op a (3 us) in the forward window, b (7 us), made from it, in the backward one of stage 0's only layer.

    Forward and backward windows cannot change places (7 > 3), so b is on the lane: 7 us a microbatch, and a 3 us more
    in the cool-down. With windows of 7 us each they can, and only the cool-down recomputes, 10 us.
    """
    hidden = StagePolicies(groups=(LayerGroup(layers=1, stored=(), recomputed=((0, 0), (1, 1))),))
    plan = replace(PLAN, stages=(hidden, KEEP))
    found = times_of(STORY, plan, 0)
    assert (found.critical_us, found.forward_hidden_us, found.ahead_us) == (7, 3, 0)
    wide = replace(STORY, windows=tuple(replace(window, time_us=7) for window in STORY.windows))
    found = times_of(wide, plan, 0)
    assert (found.critical_us, found.forward_hidden_us, found.ahead_us) == (0, 10, 0)
    assert objective(plan, wide) == 100


MUTANTS: dict[str, tuple[PipelinePlan, str]] = {
    "a stage too many": (replace(PLAN, layers=(1, 1, 1)), "layers has 3 entries, but the problem has 2 stages"),
    "policies missing": (replace(PLAN, stages=(KEEP,)), "stages has 1 entries"),
    "a layer too many": (replace(PLAN, layers=(2, 1)), "layers sums to 3"),
    "an empty stage": (replace(PLAN, layers=(0, 2)), "stage 0 has 0 layers"),
    "no such stall": (replace(PLAN, hide_in_stalls="some"), "hide_in_stalls is 'some'"),
    "groups for another number": (
        replace(PLAN, stages=(StagePolicies(groups=(LayerGroup(layers=2, stored=(0, 1), recomputed=()),)), KEEP)),
        "stage 0: groups hold 2 layers, but the problem has 1",
    ),
    "a needed op gone": (
        replace(PLAN, stages=(StagePolicies(groups=(LayerGroup(layers=1, stored=(0,), recomputed=()),)), KEEP)),
        "stage 0: groups[0] neither stores nor recomputes op 1",
    ),
    "a window overfull": (
        replace(PLAN, stages=(StagePolicies(groups=(LayerGroup(layers=1, stored=(0,), recomputed=((1, 0),)),)), KEEP)),
        "recomputes for 7 us in window 0 ('f'), which has 3 us",
    ),
    "forward windows on the last stage": (
        replace(PLAN, stages=(KEEP, StagePolicies(groups=(LayerGroup(layers=1, stored=(1,), recomputed=((0, 0),)),)))),
        "a forward window of the last stage",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refused_by_name(name: str) -> None:
    plan, words = MUTANTS[name]
    verdict = judge_pipeline(STORY, plan)
    assert verdict.objective_us is None
    assert any(words in violation for violation in verdict.violations), verdict.violations


def test_a_byte_too_little_is_too_little() -> None:
    """Stage 0 has two microbatches in flight: 15 of states and 2 · 31; stage 1 one of them."""
    for stage, need in ((0, 15 + 62), (1, 15 + 31)):
        for budget in (need, need - 1):
            stages = tuple(replace(STAGE, budget_bytes=budget) if p == stage else STAGE for p in range(2))
            clean = judge_pipeline(replace(STORY, stages=stages), PLAN).violations == ()
            assert clean == (budget == need), (stage, budget)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"objective": 89, "bound": 80}, "objective_us is 89, but the decision takes 90"),
        ({"base": 91}, "base_us is 91, but with unlimited memory it is 90"),
    ],
)
def test_false_claims_are_violations(claims: dict[str, Any], words: str) -> None:
    from solvers.ir.solution import Status

    answer = Solution(**{"status": Status.FEASIBLE, "plan": PLAN, "objective": 90, "solver": "me", **claims})
    assert any(words in violation for violation in check_plan(STORY, plan_file(answer, "pipeline", None)).violations)


@given(st.data())
def test_random_plans_are_judged_without_a_fault_of_ours(data: st.DataObject) -> None:
    problem = data.draw(pipeline_problems())
    verdict = judge_pipeline(problem, data.draw(pipeline_plans(problem)))
    assert (verdict.objective_us is None) == bool(verdict.violations)


def test_the_recurrence_is_that_of_the_timeline() -> None:
    """400 random pipelines with recomputation of every sort, told twice: pass by pass, and in waves of arrays."""
    for seed in range(400):
        source = random.Random(seed)
        depth, count = source.randint(1, 5), source.randint(1, 8)
        order: Order = source.choice(["1f1b", "gpipe"])
        hide: Hide = source.choice(["none", "cooldown", "all"])
        hop = source.choice([0, 3, 20])
        stages = [
            StageTimes(
                source.randint(0, 9),
                source.randint(0, 15),
                critical_us=source.randint(0, 6),
                forward_hidden_us=0 if p == depth - 1 else source.randint(0, 4),
                ahead_us=0 if p == depth - 1 else source.choice([0, 0, 2, 9]),
                may_hide=source.random() < 0.8,
            )
            for p in range(depth)
        ]
        how = Discipline(
            order=order,
            hide_in_stalls=hide,
            may_hide=[one.may_hide for one in stages],
            ahead_us=[one.ahead_us for one in stages],
        )
        told = pipeline(
            [one.forward_us for one in stages],
            [one.backward_us for one in stages],
            microbatches=count,
            recompute_us=[one.critical_us for one in stages],
            forward_hidden_us=[one.forward_hidden_us for one in stages],
            p2p_us=hop,
            how=how,
        )
        assert step_us(stages, count, order, hop, hide) == told.makespan_us, seed
        for p in range(depth):
            mine = [
                ("F" if one.kind == "forward" else "B", one.microbatch) for one in stage_order(p, depth, count, order)
            ]
            assert passes_of(p, depth, count, order) == mine


def test_the_base_is_bracketed_where_partitions_are_many() -> None:
    few = base_range_us(STORY)
    assert few == (90, 90)
    many = replace(STORY, layers=60, microbatches=32, stages=(STAGE,) * 10)
    low, high = base_range_us(many)
    assert low <= high <= 1.05 * low


def test_least_budgets_are_bracketed_by_two_plans() -> None:
    for seed in range(60):
        problem = random_problem(seed)
        low, high = least_budget_bytes(problem)
        assert low <= least_budget(problem) <= high, seed
        assert not is_surely_feasible(problem) or optimum(problem) is not None


def test_a_false_infeasible_is_contradicted() -> None:
    roomy = replace(STORY, stages=(replace(STAGE, budget_bytes=10_000),) * 2)
    answer = Bayplan().solve(replace(STORY, stages=(replace(STAGE, budget_bytes=20),) * 2), Limits())
    assert answer.least_budget_bytes is not None
    verdict = check_plan(roomy, plan_file(answer, "pipeline", None))
    assert any("the problem has a valid decision" in violation for violation in verdict.violations)
