"""Replay against the judge: the same verdict, objective and peak for every plan, right or wrong."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.ir import RecomputeGraphPlan, RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph import replay as module
from solvers.recompute.graph.replay import instance, plan_from_recomputations, plan_of, plan_pairs, replay, retained
from tests.solvers.check.recompute_graph.test_judge import COMM, DROP_0, KEEP_ALL, STORY, plan
from tests.solvers.recompute.graph.brute_force import random_problem
from tests.strategies import recompute_graph_plans, recompute_graph_problems

Sets = list[set[int]]


def by_stage(pairs: tuple[tuple[int, int], ...], stages: int) -> Sets:
    found: Sets = [set() for _ in range(stages)]
    for t, i in pairs:
        found[t].add(i)
    return found


def both(problem: RecomputeGraphProblem, decision: RecomputeGraphPlan) -> tuple[Sets, Sets]:
    return by_stage(decision.compute, len(problem.ops)), by_stage(decision.keep, len(problem.ops))


def judged_peak(problem: RecomputeGraphProblem, decision: RecomputeGraphPlan) -> int:
    """The least budget at which the judge finds nothing in a plan whose only fault can be memory."""
    ample = problem.static_bytes + sum(op.output_bytes for op in problem.ops) * 2
    low, high = -1, ample
    while high - low > 1:
        middle = (low + high) // 2
        fits = judge_recompute_graph(replace(problem, budget_bytes=middle), decision).clean
        low, high = (low, middle) if fits else (middle, high)
    return high


def test_the_judges_story_is_measured_alike() -> None:
    """Peaks by hand: 5 static + 4; + 3; + 1; and in stage 3 op 0 (4) beside op 2 (1) and op 3 (2)."""
    found = replay(STORY, *both(STORY, plan(keep=KEEP_ALL)))
    assert (found.objective_us, found.peaks, found.violation) == (18, [9, 12, 13, 12], None)
    again = replay(STORY, *both(STORY, plan(again=[(3, 0)], keep=DROP_0)))
    assert (again.objective_us, again.peaks, again.violation) == (22, [9, 12, 9, 12], None)


def test_the_communications_buffer_counts_from_its_start() -> None:
    hidden = plan(again=[(2, 0)], keep=[(1, 0), (2, 1), (3, 0), (3, 2)])
    found = replay(replace(COMM, budget_bytes=12), *both(COMM, hidden))
    assert (found.objective_us, found.peaks) == (17, [9, 12, 13, 12])
    assert (found.stage, found.violation) == (2, "stage 2, op 0 has 13 bytes in use, budget 12")


@pytest.mark.parametrize(
    ("problem", "decision", "words"),
    [
        (STORY, plan(keep=KEEP_ALL, stages=3), "stage 3 does not compute op 3"),
        (STORY, plan(again=[(0, 1)], keep=KEEP_ALL), "stage 0 computes op 1, whose first stage is 1"),
        (STORY, plan(again=[(3, 0)], keep=KEEP_ALL), "stage 3 both keeps and computes op 0"),
        (STORY, plan(keep=DROP_0), "stage 3 computes op 3, whose input 0 is not there"),
        (STORY, plan(keep=[*DROP_0, (3, 0)]), "stage 3 keeps op 0, which stage 2 neither kept nor computed"),
        (COMM, plan(again=[(2, 0), (2, 1)], keep=[(1, 0), (3, 0), (3, 2)]), "stage 2 recomputes for 7 us"),
    ],
)
def test_the_first_violation_is_named(problem: RecomputeGraphProblem, decision: RecomputeGraphPlan, words: str) -> None:
    found = replay(problem, *both(problem, decision))
    assert found.violation is not None and found.violation.startswith(words)


@settings(max_examples=400)
@given(recompute_graph_problems(max_ops=6).flatmap(lambda p: st.tuples(st.just(p), recompute_graph_plans(p))))
def test_any_plan_gets_the_judges_verdict(pair: tuple[RecomputeGraphProblem, RecomputeGraphPlan]) -> None:
    problem, decision = pair
    verdict, found = judge_recompute_graph(problem, decision), replay(problem, *both(problem, decision))
    assert verdict.clean == (found.violation is None)
    if verdict.clean:
        assert found.objective_us == verdict.objective_us


@st.composite
def recomputations(draw: st.DrawFn) -> tuple[RecomputeGraphProblem, Sets]:
    problem = draw(recompute_graph_problems(max_ops=7))
    count = len(problem.ops)
    sets = [draw(st.sets(st.integers(0, t - 1), max_size=3)) if t else set() for t in range(count)]
    return problem, sets


@settings(max_examples=400)
@given(recomputations())
def test_the_least_retention_is_the_judges_plan_and_no_entry_can_go(pair: tuple[RecomputeGraphProblem, Sets]) -> None:
    """Judged clean but for memory at the ample budget; the peak agrees; dropping any kept pair breaks the data."""
    problem, sets = pair
    ample = replace(problem, budget_bytes=10**6)
    decision, found = plan_from_recomputations(problem, sets), replay(ample, sets)
    verdict = judge_recompute_graph(ample, decision)
    assert verdict.clean == (found.violation is None)
    if not verdict.clean:
        return
    assert verdict.objective_us == found.objective_us
    assert judged_peak(problem, decision) == found.peak_bytes
    for pair_kept in decision.keep:
        fewer = RecomputeGraphPlan(
            compute=decision.compute, keep=tuple(pair for pair in decision.keep if pair != pair_kept)
        )
        assert not judge_recompute_graph(ample, fewer).clean


def test_a_plan_survives_the_way_through_runs() -> None:
    sets: Sets = [set(), set(), set(), {0}]
    runs = retained(instance(STORY), sets)
    assert runs == [{0: 1}, {1: 2}, {2: 3}, {0: 3, 3: 3}]
    assert plan_of(runs) == plan_from_recomputations(STORY, sets)
    assert plan_pairs([{0}, {1}], [set(), {0}]).keep == ((1, 0),)


def test_722_ops_are_replayed_in_milliseconds() -> None:
    """A training chain with a recomputation in every tenth stage; 50 ms are the promise, a slow machine allowed for."""
    count, half, source = 722, 361, random.Random(0)
    ops = tuple(
        RecomputeOp(
            name=str(t),
            time_us=5,
            output_bytes=10,
            inputs=tuple(sorted({t - 1} | ({count - 1 - t} if t > half else set()))) if t else (),
            comm=t % 10 == 3,
        )
        for t in range(count)
    )
    large = instance(RecomputeGraphProblem(name="large", budget_bytes=10**6, static_bytes=0, ops=ops))
    sets: Sets = [{source.randrange(half)} if t > half and t % 10 == 0 else set() for t in range(count)]
    for _ in range(10):
        assert replay(large, sets).violation is None


def test_large_plans_keep_runs_that_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        problem = random_problem(seed)
        given = instance(problem)
        runs = retained(given, [()] * len(given))
        listed = plan_of(runs)
        monkeypatch.setattr(module, "MOST_PAIRS", 0)
        short = plan_of(runs)
        monkeypatch.undo()
        pairs = {(t, i) for i, first, last in short.keep_runs for t in range(first, last + 1)}
        assert (short.keep, short.compute, pairs) == ((), listed.compute, set(listed.keep))
        assert judge_recompute_graph(problem, short) == judge_recompute_graph(problem, listed)
