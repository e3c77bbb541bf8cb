"""Plans ahead: every class of the next failure has its plan, renamed rightly, in a thousandth of a second."""

import random
import time
from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan
from solvers.ir import Hosts, InvalidInput, Limits, ReplanPlan, ReplanProblem, Solution, Status, Watch
from solvers.replan.ahead import PlanCache, after_failure, next_failures
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.oobleck import Oobleck
from solvers.replan.structure import structure_of
from solvers.replan.symmetric import Symmetric
from solvers.replan.transfer.owners import idle_nodes
from tests.solvers.replan.clusters import before, grid
from tests.strategies import replan_problems

LIMITS = Limits(time_s=30.0)


def renamed(problem: ReplanProblem, source: random.Random) -> ReplanProblem:
    """The same cluster: its nodes under other names, its pipelines in another order."""
    if problem.current is None:
        return problem
    names = source.sample(range(100), 40)
    pipelines = [
        msgspec.structs.replace(pipeline, nodes=tuple(names[node] for node in pipeline.nodes))
        for pipeline in problem.current.pipelines
    ]
    source.shuffle(pipelines)
    failed = [names[node] for node in problem.current.failed]
    source.shuffle(failed)
    current = msgspec.structs.replace(problem.current, pipelines=tuple(pipelines), failed=tuple(failed))
    return msgspec.structs.replace(problem, name="renamed", current=current)


@pytest.mark.parametrize("solver", [Symmetric(), Algorithm1()], ids=["symmetric", "algorithm1"])
@settings(max_examples=250, deadline=None)
@given(problem=replan_problems(failure=True), seed=st.integers(0, 2**31))
def test_a_plan_holds_under_any_names(solver: Algorithm1 | Symmetric, problem: ReplanProblem, seed: int) -> None:
    cache = PlanCache(solver)
    first = cache.solve(problem, LIMITS)
    other = renamed(problem, random.Random(seed))
    answer = cache.plan(other)
    assert answer is not None
    assert (answer.status, answer.objective, answer.reason) == (first.status, first.objective, first.reason)
    if answer.plan is not None:
        verdict = judge_replan(other, answer.plan)
        assert verdict.violations == ()
        assert verdict.objective_us == answer.objective


@settings(max_examples=200, deadline=None)
@given(one=replan_problems(), other=replan_problems())
def test_clusters_that_differ_share_nothing(one: ReplanProblem, other: ReplanProblem) -> None:
    same = structure_of(one).key == structure_of(other).key
    if same:
        assert one.nodes == other.nodes
        assert judge_replan(one, ReplanPlan(policy="reroute", pipelines=(), transfers=None)) == judge_replan(
            other, ReplanPlan(policy="reroute", pipelines=(), transfers=None)
        )


def test_each_difference_matters() -> None:
    problem = grid(2, 3, 4, 6, failed=[1], idle=1)
    key = structure_of(problem).key
    assert structure_of(grid(2, 3, 4, 6, failed=[3], idle=1)).key == key
    for other in (
        grid(2, 3, 4, 6, failed=[0], idle=1),
        grid(2, 3, 4, 6, failed=[1, 3], idle=2),
        grid(2, 3, 4, 6, failed=[1], idle=2),
        grid(2, 3, 4, 6, failed=[1], idle=1, p2p_us=1),
        grid(2, 3, 4, 6, failed=[1], idle=1, expected_interval_us=7),
        grid(2, 3, 4, 6, failed=[1], idle=1, data_parallel=None),
        before(grid(2, 3, 4, 6, failed=[1], idle=1)),
    ):
        assert structure_of(other).key != key


def test_without_a_running_state_plans_have_no_nodes_to_rename() -> None:
    cache, problem = PlanCache(Symmetric()), before(grid(2, 3, 4, 6))
    assert cache.plan(problem) is None
    first = cache.solve(problem, LIMITS)
    assert first.plan is not None
    again = cache.plan(problem)
    assert again is not None and again.plan == first.plan


@pytest.mark.parametrize("losses", [1, 2, 3])
@pytest.mark.parametrize(
    "running",
    [
        grid(2, 3, 4, 6, idle=1),
        grid(3, 2, 5, 4, failed=[1]),
        grid(1, 3, 2, 3, failed=[0], idle=2),
        grid(2, 3, 4, 6, failed=[4], idle=2, hosts=Hosts(nodes=2, bytes_per_s=2 * 10**9)),
        grid(1, 1, 2, 3, idle=3, hosts=Hosts(nodes=2, bytes_per_s=2 * 10**9)),
    ],
    ids=["idle", "hit", "flat", "hosts", "lone on hosts"],
)
def test_the_classes_are_those_of_all_sets_of_nodes(running: ReplanProblem, losses: int) -> None:
    assert running.current is not None
    gone = set(running.current.failed)
    staged = [node for pipeline in running.current.pipelines for node in pipeline.nodes if node not in gone]
    alive = [*staged, *idle_nodes(running)]
    if losses >= len(alive):
        return
    every = Counter(structure_of(after_failure(running, failed)).key for failed in combinations(alive, losses))
    found = [failure for failure in next_failures(running, losses) if failure.losses == losses]
    keys = [structure_of(after_failure(running, failure.failed)).key for failure in found]
    shares = {key: failure.probability for key, failure in zip(keys, found, strict=True)}
    assert len(keys) == len(set(keys))
    assert shares == {key: Fraction(count, comb(len(alive), losses)) for key, count in every.items()}
    assert [failure.probability for failure in found] == sorted(shares.values(), reverse=True)


def test_after_filling_no_failure_is_a_surprise() -> None:
    running = grid(3, 3, 6, 9, idle=1)
    cache = PlanCache(Algorithm1())
    assert cache.fill(running, LIMITS, most_losses=2) == len(next_failures(running, 2)) == len(cache)
    assert cache.fill(running, LIMITS, most_losses=2) == 0
    for failed in [*combinations(range(10), 1), *combinations(range(10), 2)]:
        problem = after_failure(running, failed)
        answer = cache.plan(problem)
        assert answer is not None and answer.plan is not None
        verdict = judge_replan(problem, answer.plan)
        assert (verdict.violations, verdict.objective_us) == ((), answer.objective)


def test_a_failure_takes_a_node_and_stretches_the_interval() -> None:
    running = grid(2, 2, 4, 4, failed=[0], idle=1, expected_interval_us=900)
    problem = after_failure(running, (3, 4))
    assert problem.current is not None
    assert (problem.nodes, problem.current.failed, problem.expected_interval_us) == (2, (0, 3), 1800)
    with pytest.raises(InvalidInput, match="at least one must stay"):
        after_failure(running, (1, 2, 3, 4))
    with pytest.raises(InvalidInput, match="node 3 fails 2 times at once"):
        after_failure(running, (3, 3))
    with pytest.raises(InvalidInput, match="node 0 fails, but is not one of the 4 alive"):
        after_failure(running, (0,))
    with pytest.raises(InvalidInput, match="without current"):
        next_failures(before(running))
    with pytest.raises(InvalidInput, match="most_losses is 0"):
        next_failures(running, 0)


def test_the_oldest_plan_makes_room() -> None:
    cache = PlanCache(Symmetric(), most=2)
    problems = [grid(2, 2, 4, 4, failed=[0], sync_us=time) for time in range(3)]
    for problem in problems:
        cache.solve(problem, LIMITS)
    assert len(cache) == 2
    assert cache.plan(problems[0]) is None
    assert cache.plan(problems[2]) is not None
    with pytest.raises(InvalidInput, match="most is 0"):
        PlanCache(Symmetric(), most=0)


def test_a_remembered_plan_is_not_sought_again() -> None:
    class Counting:
        asked = 0

        def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
            self.asked += 1
            return Symmetric().solve(problem, limits, watch)

    solver = Counting()
    cache = PlanCache(solver)
    cache.solve(grid(2, 3, 4, 6, failed=[1]), LIMITS)
    cache.solve(grid(2, 3, 4, 6, failed=[5]), LIMITS)
    assert solver.asked == 1


class Slow:
    """A solver that needs a second, and is told how long each call takes: then it proves, else it has a plan only."""

    def __init__(self, clock: list[float]) -> None:
        self.asked: list[float] = []
        self._clock = clock

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        self.asked.append(limits.time_s)
        stopped = watch is not None and watch(None, None, 0.0)
        self._clock[0] += min(limits.time_s, 1.0) if not stopped else 0.1
        found = Symmetric().solve(problem, Limits())
        assert found.objective is not None
        if stopped or limits.time_s < 1.0:
            return msgspec.structs.replace(found, objective=found.objective + 1, reason="the limits ended the search")
        proven = limits.gap == 0
        return msgspec.structs.replace(
            found, status=Status.OPTIMAL if proven else Status.FEASIBLE, bound=found.objective if proven else None
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("solvers.replan.ahead.time.perf_counter", lambda: now[0])
    return now


def test_what_the_limits_ended_is_sought_again_with_more_time(clock: list[float]) -> None:
    solver = Slow(clock)
    cache, problem, alike = PlanCache(solver), grid(2, 3, 4, 6, failed=[1]), grid(2, 3, 4, 6, failed=[5])
    cut = cache.solve(problem, Limits(time_s=0.0))
    assert cache.plan(problem) is not None, "better than nothing"
    assert cache.solve(alike, Limits(time_s=0.0)).objective == cut.objective
    assert solver.asked == [0.0], "no more time, no other answer"
    whole = cache.solve(alike, Limits(time_s=60.0))
    assert whole.status is Status.OPTIMAL and whole.objective is not None and whole.objective < (cut.objective or 0)
    assert cache.solve(problem, Limits(time_s=600.0)).status is Status.OPTIMAL
    assert solver.asked == [0.0, 60.0] and len(cache) == 1


def test_a_watcher_or_a_gap_ends_a_search_like_time(clock: list[float]) -> None:
    solver, problem = Slow(clock), grid(2, 3, 4, 6, failed=[1])
    cache = PlanCache(solver, most=1)
    assert cache.solve(problem, Limits(time_s=60.0), lambda *_: True).reason is not None
    assert cache.solve(problem, Limits(time_s=60.0, gap=0.1), lambda *_: False).status is Status.FEASIBLE
    assert cache.solve(problem, Limits(time_s=60.0, gap=0.2)).status is Status.FEASIBLE
    assert len(solver.asked) == 2, "ended by itself, and with the smaller gap"
    assert cache.solve(problem, Limits(time_s=60.0)).status is Status.OPTIMAL
    assert len(solver.asked) == 3


def test_more_time_never_makes_an_answer_worse(clock: list[float]) -> None:
    class Worse:
        lost = 0

        def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
            clock[0] += limits.time_s
            found = Symmetric().solve(problem, Limits())
            self.lost += 1
            return msgspec.structs.replace(found, objective=(found.objective or 0) + self.lost)

    cache, problem = PlanCache(Worse()), grid(2, 3, 4, 6, failed=[1])
    first = cache.solve(problem, Limits(time_s=1.0))
    assert cache.solve(problem, Limits(time_s=2.0)).objective == first.objective
    known = cache.plan(problem)
    assert known is not None and known.objective == first.objective


def test_filling_goes_on_where_the_limits_ended_it(clock: list[float]) -> None:
    running = grid(2, 2, 4, 4)
    classes = len(next_failures(running))
    solver = Slow(clock)
    cache = PlanCache(solver)
    assert cache.fill(running, Limits(time_s=0.5)) == 1, "the first takes all the time"
    assert cache.fill(running, Limits(time_s=60.0)) == classes
    assert cache.fill(running, Limits(time_s=60.0)) == 0


@pytest.mark.parametrize(("depth", "degree"), [(16, 128), (4, 512)])
def test_2048_nodes_are_answered_within_a_millisecond(depth: int, degree: int) -> None:
    cache = PlanCache(Oobleck())
    cache.solve(grid(depth, degree, 80, 16 * degree, failed=[5, 40, 401], memory_bytes=10**6), LIMITS)
    problem = grid(depth, degree, 80, 16 * degree, failed=[53, 88, 1009], memory_bytes=10**6)

    def once() -> float:
        began = time.process_time()
        answer = cache.plan(problem)
        took = time.process_time() - began
        assert answer is not None and answer.plan is not None
        assert sum(len(pipeline.layers) for pipeline in answer.plan.pipelines) == 2045
        return took

    assert min(once() for _ in range(20)) < 0.001
