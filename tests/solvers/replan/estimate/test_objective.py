"""The judge computes the same step, synchronization and stretched objective, from its own text."""

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan
from solvers.ir import CurrentPipeline, CurrentState, NewPipeline, ReplanPlan, ReplanProblem, Transfer
from solvers.replan.estimate.objective import Split, step_us, stretched_us
from solvers.replan.estimate.sync import sync_us
from tests.solvers.replan.estimate.problems import changed


def plan(pipelines: list[Split]) -> ReplanPlan:
    new = tuple(NewPipeline(layers=layers, microbatches=count, nodes=None) for layers, count in pipelines)
    return ReplanPlan(policy="dynamic", pipelines=new, transfers=None)


def test_one_pipeline_has_nobody_to_agree_with() -> None:
    problem = changed(sync_us=50, layer_sync_us=3)
    assert sync_us(problem, [(4, 4)]) == 0
    assert sync_us(problem, [(4, 4), (8,)]) == 50 + 8 * 3
    assert sync_us(problem, [(4, 4), (3, 5)]) == 50 + 5 * 3


def test_the_slowest_pipeline_makes_the_step() -> None:
    """Three stages of one layer, 5 microbatches: (5 + 2)·3 = 21; one stage of three, 2 microbatches: 2·9 = 18."""
    problem = changed(layers=3, sync_us=50, layer_sync_us=1)
    assert step_us(problem, [((1, 1, 1), 5), ((3,), 2)]) == 21 + 50 + 3
    assert step_us(problem, [((3,), 2)]) == 18


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ReplanProblem, list[Split]]:
    layers = draw(st.integers(1, 6))
    extra = st.tuples(st.integers(0, 9), st.integers(0, 9))
    pipelines: list[Split] = []
    for _ in range(draw(st.integers(1, 3))):
        cuts = sorted(draw(st.sets(st.integers(1, layers - 1), max_size=4))) if layers > 1 else []
        stages = tuple(b - a for a, b in zip([0, *cuts], [*cuts, layers], strict=True))
        pipelines.append((stages, draw(st.integers(1, 12))))
    problem = changed(
        layers=layers,
        forward_us=draw(st.integers(0, 9)),
        backward_us=draw(st.integers(0, 9)),
        first_extra_us=draw(extra),
        last_extra_us=draw(extra),
        p2p_us=draw(st.integers(0, 5)),
        sync_us=draw(st.integers(0, 99)),
        layer_sync_us=draw(st.integers(0, 9)),
        microbatches=sum(count for _, count in pipelines),
    )
    return problem, pipelines


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_the_judge_finds_the_same_step(cluster: tuple[ReplanProblem, list[Split]]) -> None:
    problem, pipelines = cluster
    verdict = judge_replan(problem, plan(pipelines))
    assert verdict.violations == ()
    assert verdict.objective_us == step_us(problem, pipelines) == stretched_us(problem, step_us(problem, pipelines))


def after_a_failure(interval_us: int, restart_us: int) -> ReplanProblem:
    """Two pipelines of two nodes, one of which has failed; layers of 10 bytes, a byte a second."""
    current = CurrentState(
        pipelines=(
            CurrentPipeline(layers=(2, 2), nodes=(0, 1), microbatches=4),
            CurrentPipeline(layers=(2, 2), nodes=(2, 3), microbatches=4),
        ),
        failed=(3,),
    )
    return msgspec.structs.replace(
        changed(layers=4, nodes=3, microbatches=8, layer_static_bytes=10, sync_us=7),
        current=current,
        restart_us=restart_us,
        bytes_per_s=1,
        expected_interval_us=interval_us,
    )


@pytest.mark.parametrize("interval_us", [20_000_004, 33_333_333, 10**12])
def test_the_judge_stretches_a_step_alike(interval_us: int) -> None:
    """Node 2 gets two layers of 10 bytes at a byte a second: 20 s, and 3 us to restart."""
    problem = after_a_failure(interval_us, 3)
    pipelines = (
        NewPipeline(layers=(2, 2), microbatches=5, nodes=(0, 1)),
        NewPipeline(layers=(4,), microbatches=3, nodes=(2,)),
    )
    moved = tuple(Transfer(layer=layer, source=1, target=2) for layer in (2, 3))
    verdict = judge_replan(problem, ReplanPlan(policy="dynamic", pipelines=pipelines, transfers=moved))
    step = step_us(problem, [(one.layers, one.microbatches) for one in pipelines])
    assert step == 36 + 7
    assert verdict.violations == ()
    assert verdict.objective_us == stretched_us(problem, step, Fraction(20_000_003))


def test_a_transition_as_long_as_the_interval_does_no_step() -> None:
    problem = after_a_failure(100, 3)
    assert stretched_us(problem, 10, 99) == 1000
    assert stretched_us(problem, 10, Fraction(1, 3)) == 11
    assert stretched_us(problem, Fraction(7, 2), 0) == 4
    assert stretched_us(problem, 10, 100) is None
