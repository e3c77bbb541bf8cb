"""Loads that whole numbers of pipelines exclude: no plan keeps to them, and fractions do not exclude them."""

from collections import Counter
from functools import partial

import pytest

from experiments.bench.deep import deep_cluster
from solvers.check.replan.judge import judge_replan
from solvers.ir import Limits, ReplanProblem, Status
from solvers.replan import ExactReplan
from solvers.replan.exact import questions
from solvers.replan.exact.closing import Closed, _Closing, closed
from solvers.replan.exact.incumbent import Incumbent
from solvers.replan.exact.movable import Movable
from solvers.replan.exact.prices import Pricing
from solvers.replan.exact.questions import Questions
from solvers.replan.exact.steps import StepTimes
from solvers.replan.progress import Progress
from solvers.replan.transfer.owners import layer_bytes
from tests.solvers.replan.brute_force import random_problem, unlike_problem

LIMITS = Limits(time_s=60)


def _pricing(problem: ReplanProblem, latest_us: int, load: int) -> list[Pricing]:
    """What is asked of plans with such a T_step in which no node is busier, nothing being excluded yet."""
    steps, asked = _steps(problem), list[Pricing]()
    market = Questions(Incumbent(problem, steps, Progress(LIMITS, None))).market
    for within in steps.within(latest_us, load) or ():
        counts = partial(steps.most_within, limit_us=within.limit_us)
        asked.append(Pricing(market, load, within, lambda: False, None, counts))
        asked[-1]._settle(*asked[-1]._solved()[1:])
    return asked


def _steps(problem: ReplanProblem) -> StepTimes:
    return StepTimes(problem, Movable(problem), 2000, lambda: False)


def test_no_load_is_excluded_that_a_plan_keeps_to() -> None:
    """The best plans of small clusters, asked for with their own step and the load of their own busiest node."""
    asked = left = 0
    for seed in range(160):
        problem = (random_problem if seed % 2 else unlike_problem)(seed)
        plan = ExactReplan().solve(problem, LIMITS).plan
        if plan is None or plan.policy == "reroute" or plan.transfers is None or problem.hosts is not None:
            continue
        sizes, loads = layer_bytes(problem), Counter[tuple[int, str]]()
        for move in plan.transfers:
            loads[move.source, "sends"] += sizes[move.layer]
            loads[move.target, "receives"] += sizes[move.layer]
        step = _steps(problem).step_us(tuple((one.layers, one.microbatches) for one in plan.pipelines))
        if asking := _pricing(problem, step, max(loads.values(), default=0)):
            asked += 1
            said = [closed(pricing) for pricing in asking]
            assert not all(one.excluded for one in said), problem.name
            left += any(one.splits for one in said)
    assert asked > 10 and left > 10, (asked, left)


def test_they_close_what_fractions_leave_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,913 nodes: fractions of pipelines count 1.00026 of the microbatches with a load that no whole ones keep to."""
    problem = deep_cluster(21006)
    answer = ExactReplan().solve(problem, LIMITS)
    assert answer.status is Status.OPTIMAL and answer.plan is not None
    assert judge_replan(problem, answer.plan).objective_us == answer.objective
    monkeypatch.setattr(questions, "closed", lambda pricing: Closed(False))
    assert ExactReplan().solve(problem, LIMITS).status is Status.FEASIBLE


def test_whole_pipelines_are_made_of_splits_cheapest_at_prices_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,829 nodes: the splits known of the numbers that pay do not keep to the load whole, others do."""
    problem = deep_cluster(16031)
    answer = ExactReplan().solve(problem, LIMITS)
    assert answer.status is Status.OPTIMAL and answer.plan is not None
    assert judge_replan(problem, answer.plan).objective_us == answer.objective
    monkeypatch.setattr(_Closing, "_whole", lambda *_: None)
    dearer = ExactReplan().solve(problem, LIMITS)
    assert dearer.objective is not None and answer.objective is not None and dearer.objective > answer.objective


def test_shapes_of_which_no_split_ends_in_time_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,921 nodes: the relaxation lets 63 stages end in time with 63 microbatches, and no split does."""
    problem = deep_cluster(22040)
    assert ExactReplan().solve(problem, LIMITS).status is Status.OPTIMAL
    monkeypatch.setattr(_Closing, "_dropped", lambda *_: False)
    assert ExactReplan().solve(problem, LIMITS).status is Status.FEASIBLE


@pytest.mark.parametrize("seed", [216, 88057, 88007, 500085, 456056, 500022])
def test_what_was_open_is_proven(seed: int) -> None:
    """More than a thousand shapes of pipelines may be of use; the least load is looked at before larger ones.

    Of 88007 hundreds of partial splits are kept for a proof; of 500085 it counts how many pipelines there can be; of
    456056 and 500022 prices are sought about the best ones.
    """
    problem = deep_cluster(seed)
    answer = ExactReplan().solve(problem, LIMITS)
    assert answer.status is Status.OPTIMAL and answer.plan is not None
    assert judge_replan(problem, answer.plan).objective_us == answer.objective


def test_few_of_many_shapes_are_priced_and_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shape costs less than the least that is said of it; most cost the same with few and many microbatches."""
    problem, asked = deep_cluster(16031), 0
    plan = ExactReplan().solve(problem, LIMITS).plan
    assert plan is not None
    step = _steps(problem).step_us(tuple((one.layers, one.microbatches) for one in plan.pipelines))
    pricing = _pricing(problem, step, 10**11)[0]
    splits, possible = pricing.priced(*pricing.settled_at), pricing.within.possible
    shapes = [(depth, count) for depth in sorted(possible)[::9] for count in range(1, min(possible[depth], 60))]
    least = [price for price, _ in splits.cheapest(shapes)]
    search = splits.cheapest

    def counting(some: list[tuple[int, int]]) -> object:
        nonlocal asked
        asked += len(some)
        return search(some)

    monkeypatch.setattr(splits, "cheapest", counting)
    found = splits.cheapest_of_many(shapes)
    assert [found[shape][0] for shape in shapes] == least and asked < len(shapes) // 2
