"""The search for plans of any graph: valid, within the budget, near the optimum of tiny instances, never worse."""

import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.ir import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.instances import at_position, mobilenet, random_layered, unet
from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.opt.search.blocks import evict_block, fill, hide
from solvers.recompute.graph.opt.search.moves import Moves
from solvers.recompute.graph.opt.search.plans import Effort, construct, improve
from solvers.recompute.graph.opt.search.state import State
from solvers.recompute.graph.replay import Instance, instance, plan_from_recomputations, replay
from tests.solvers.recompute.graph.brute_force import optimum, random_problem
from tests.strategies import recompute_graph_problems

Sets = list[set[int]]


def soon(seconds: float = 30.0) -> float:
    return time.perf_counter() + seconds


def judged(problem: RecomputeGraphProblem, recomputed: Sets) -> int:
    """The judge's objective of a plan that it finds nothing wrong with."""
    verdict = judge_recompute_graph(problem, plan_from_recomputations(problem, recomputed))
    assert verdict.clean, verdict.violations
    assert verdict.objective_us is not None
    return verdict.objective_us


def assert_alike(state: State, measured: Instance) -> None:
    found = replay(measured, state.again)
    assert state.levels().tolist() == found.peaks
    assert state.cost + measured.base == found.objective_us


@pytest.mark.parametrize("seed", range(40))
def test_a_state_is_what_replay_measures_after_any_changes_and_their_undoing(seed: int) -> None:
    source = random.Random(seed)
    measured = instance(random_layered(source.randint(6, 40), seed=seed, comm=0.2))
    ops = len(measured)
    state = State(measured, [{i for i in range(t) if source.random() < 0.05} for t in range(ops)])
    assert_alike(state, measured)
    for _ in range(20):
        before = state.recomputed()
        for _ in range(source.randint(1, 4)):
            t = source.randrange(1, ops)
            v = source.randrange(t)
            (state.remove if v in state.again[t] else state.add)(t, v)
        if source.random() < 0.3:
            state.drop_unread()
        assert_alike(state, measured)
        if source.random() < 0.5:
            state.commit()
        else:
            state.undo()
            assert state.again == before
            assert_alike(state, measured)


def test_what_nothing_reads_is_not_computed_again() -> None:
    """In a chain 0 … 3 whose op 3 reads op 0 too, computing 0 in stage 3 leaves a recomputation in stage 2 unread."""
    problem = random_layered(4, width=1, seed=1)
    ops = [
        replace(op, inputs=inputs, comm=False) for op, inputs in zip(problem.ops, ((), (0,), (1,), (0, 2)), strict=True)
    ]
    state = State(instance(replace(problem, ops=tuple(ops))), [(), (), {0}, ()])
    state.add(3, 0)
    state.drop_unread()
    assert state.again == [set(), set(), set(), {0}]


TINY = 120


def test_tiny_plans_are_near_the_optimum_never_below_and_hardly_ever_missed() -> None:
    """Brute force over 120 graphs; measured: none of 92 feasible ones missed, 0.1 % above the optimum on average."""
    distances, missed = [], 0
    for seed in range(TINY):
        problem = random_problem(seed)
        least = optimum(problem)
        found = construct(instance(problem), soon() if least is not None else soon(0.05), seed)
        if least is None:
            assert found is None
        elif found is None:
            missed += 1
        else:
            plan = improve(instance(problem), found, Effort(soon(), moves=1500, goal=least), seed)
            objective = judged(problem, plan)
            assert least <= objective <= judged(problem, found)
            distances.append(objective / least - 1)
    assert missed <= 2
    assert len(distances) >= 85
    assert sum(distances) / len(distances) < 0.003


@settings(max_examples=200, deadline=None)
@given(recompute_graph_problems(max_ops=7))
def test_any_small_graph_gets_a_valid_plan_or_none(problem: RecomputeGraphProblem) -> None:
    """At the budget of keeping everything there is always a plan, and it recomputes nothing."""
    measured = instance(problem)
    found = construct(measured, soon(0.02), seed=0)
    if found is not None:
        before = judged(problem, found)
        assert judged(problem, improve(measured, found, Effort(soon(), moves=100), seed=1)) <= before
    ample = replace(problem, budget_bytes=problem.static_bytes + sum(op.output_bytes for op in problem.ops))
    assert construct(instance(ample), soon(), seed=0) == [set() for _ in problem.ops]


@pytest.mark.parametrize("position", [0.15, 0.5])
@pytest.mark.parametrize("make", [unet, mobilenet, random_layered])
def test_training_graphs_get_a_plan_at_once_and_a_better_one_soon(
    make: Callable[[], RecomputeGraphProblem], position: float
) -> None:
    """The random graph needs more memory than this for a plan at once: it gets some."""
    problem = at_position(make(), position + (0.15 if make is random_layered else 0))
    measured = instance(problem)
    first = construct(measured, soon(), seed=0)
    assert first is not None
    better = improve(measured, first, Effort(soon(), moves=1500), seed=0)
    assert measured.base < judged(problem, better) < judged(problem, first)


def test_what_is_behind_a_communication_makes_room_for_what_is_paid() -> None:
    """Op 1 (8 us) is paid in stage 5 and op 0 (3 us) hidden in communication 3 of 8 us: one of them fits there."""
    times, inputs = (3, 8, 1, 8, 1, 1), ((), (), (0,), (2,), (0, 3), (1, 4))
    ops = tuple(
        RecomputeOp(name=str(t), time_us=time_us, output_bytes=1, inputs=read, comm=t == 3)
        for t, (time_us, read) in enumerate(zip(times, inputs, strict=True))
    )
    measured = instance(RecomputeGraphProblem(name="", budget_bytes=9, static_bytes=0, ops=ops))
    state = State(measured, [(), (), (), {0}, (), {1}])
    assert state.cost == 8
    assert hide(Moves(state, random.Random(0)), 5, 1)
    state.drop_unread()
    assert 1 in state.again[3]
    assert 0 not in state.again[3]
    assert state.cost in (0, 3)  # op 0 is kept, or computed again in stage 4
    assert_alike(state, measured)


def test_a_block_is_evicted_together_and_comes_back_where_there_is_room() -> None:
    measured = instance(replace(unet(), budget_bytes=10**12))
    for seed in range(20):
        state = State(measured, [()] * len(measured))
        if evict_block(Moves(state, random.Random(seed)), 50):
            state.drop_unread()
            assert state.cost > 0
            fill(Moves(state, random.Random(seed)))
            assert state.cost == 0
    assert any(evict_block(Moves(State(measured, [()] * len(measured)), random.Random(seed)), 50) for seed in range(20))


def test_recomputation_hides_behind_communication() -> None:
    """Of a graph with communication, what the search leaves on the critical path is less than without it."""
    problem = random_layered(120, comm=0.3, position=0.6)
    silent = replace(problem, ops=tuple(replace(op, comm=False) for op in problem.ops))
    objectives = []
    for version in (problem, silent):
        first = construct(instance(version), soon(), seed=0)
        assert first is not None
        objectives.append(judged(version, improve(instance(version), first, Effort(soon(), moves=2000), seed=0)))
    assert objectives[0] < objectives[1]


def test_the_least_working_set_as_budget_is_met_exactly() -> None:
    """A chain of equal outputs needs two at a time; forwards only, so that nothing has to come back."""
    problem = random_layered(20, width=1, seed=3, comm=0.0)
    ops = tuple(
        replace(op, inputs=(t - 1,) if t else (), output_bytes=4, time_us=1) for t, op in enumerate(problem.ops)
    )
    chain = replace(problem, ops=(*ops, replace(ops[-1], inputs=(0, 19))), static_bytes=1, budget_bytes=13)
    measured = instance(chain)
    assert least_budget_bytes(measured) == chain.budget_bytes
    found = construct(measured, soon(), seed=0)
    assert found is not None
    assert (
        judged(chain, improve(measured, found, Effort(soon(), moves=50), seed=0)) == 21
    )  # op 0 stays: three at a time fit
    assert construct(instance(replace(chain, budget_bytes=12)), soon(), seed=0) is None


def test_a_seed_and_a_number_of_moves_make_the_plan() -> None:
    measured = instance(unet(position=0.05))
    first = construct(measured, soon(), seed=5)
    assert first is not None
    assert construct(measured, soon(), seed=5) == first
    plans = [improve(measured, first, Effort(soon(), moves=400), seed=5) for _ in range(2)]
    assert plans[0] == plans[1]


def test_the_observer_stops_the_search_and_sees_it_improve() -> None:
    measured = instance(unet(position=0.3))
    seen: list[int | None] = []

    def observe(objective: int | None) -> bool:
        seen.append(objective)
        return len(seen) == 30

    first = construct(measured, soon(), seed=0, watch=lambda objective: False)
    assert first is not None
    improve(measured, first, Effort(soon()), seed=0, watch=observe)
    assert len(seen) == 30
    known = [objective for objective in seen if objective is not None]
    assert known == sorted(known, reverse=True)
    assert known[-1] < known[0]


def test_polishing_starts_from_the_plan_alone_and_stops_at_the_goal() -> None:
    measured = instance(unet(position=0.3))
    first = construct(measured, soon(), seed=0)
    assert first is not None
    before = replay(measured, first).objective_us
    polished = improve(measured, first, Effort(soon(), moves=600, starts=0), seed=0)
    assert replay(measured, polished).objective_us < before
    assert improve(measured, first, Effort(soon(), moves=600, goal=before), seed=0) == first


def test_no_time_is_no_plan_and_no_change() -> None:
    measured = instance(unet(position=0.3))
    assert construct(measured, time.perf_counter() - 1, seed=0) is None
    first = construct(measured, soon(), seed=0)
    assert first is not None
    assert improve(measured, first, Effort(time.perf_counter() - 1), seed=0) == first
