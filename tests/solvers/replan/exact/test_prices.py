"""Prices of nodes and of sent layers: what they exclude no plan reaches, and the plans that they find keep the load."""

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from solvers.check.replan.judge import judge_replan
from solvers.ir import Limits, ReplanPlan, ReplanProblem, Solution
from solvers.replan import ExactReplan
from solvers.replan.exact import transition
from solvers.replan.exact.prices import Market, Pricing, whole_plan
from solvers.replan.instances import HOUR_US, Model
from tests.solvers.replan.brute_force import optimum, random_problem, unlike_problem

LIMITS = Limits(time_s=60)


@pytest.fixture
def excluded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Nothing but prices bounds transitions; whether they excluded the load, question by question."""
    said, asked = list[bool](), Pricing.excluded

    def noted(self: Pricing, known: list[tuple[tuple[int, ...], int]]) -> object:
        found = asked(self, known)
        said.append(found is None)
        return found

    monkeypatch.setattr(Pricing, "excluded", noted)
    monkeypatch.setattr(transition, "_SMALL", 0)
    monkeypatch.setattr(transition, "_SHALLOW", 0)
    monkeypatch.setattr(transition._Search, "_bound", lambda self, least: 0)
    yield said


def judged(problem: ReplanProblem) -> Solution[ReplanPlan]:
    """An answer whose plan is valid and of the objective that it claims."""
    answer = ExactReplan().solve(problem, LIMITS)
    if answer.plan is not None:
        verdict = judge_replan(problem, answer.plan)
        assert (verdict.violations, verdict.objective_us) == ((), answer.objective)
    return answer


@pytest.mark.parametrize(("cluster", "seeds"), [(random_problem, 80), (unlike_problem, 40)])
def test_no_plan_is_better_than_what_prices_leave(
    cluster: Callable[[int], ReplanProblem], seeds: int, excluded: list[bool]
) -> None:
    for seed in range(seeds):
        problem = cluster(seed)
        answer, best = judged(problem), optimum(problem)
        if best is not None and answer.bound is not None:
            assert answer.bound <= best, seed
    assert any(excluded), "prices prove something"


def small_cluster(seed: int) -> ReplanProblem:
    """20 to 60 nodes with embedding and head, one to three lost."""
    draw = random.Random(seed)
    depth, data = draw.randint(4, 8), draw.randint(5, 8)
    model = Model(layers=draw.randint(depth, 3 * depth), vocab=draw.choice([32_000, 256_000]))
    failed = tuple(sorted(draw.sample(range(depth * data), draw.choice([1, 3]))))
    problem = model.after("small", depth, data, data * draw.choice([depth // 2, 2 * depth]), failed)
    return msgspec.structs.replace(problem, memory_bytes=80 << 30, expected_interval_us=HOUR_US)


def test_prices_and_loads_one_by_one_never_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [judged(small_cluster(seed)) for seed in range(3)]
    monkeypatch.setattr(transition, "_SHALLOW", 0)
    monkeypatch.setattr(transition._Search, "_bound", lambda self, least: 0)
    for seed, other in enumerate(plain):
        answer = judged(small_cluster(seed))
        assert answer.bound is not None and other.bound is not None
        assert answer.objective is not None and other.objective is not None
        assert answer.bound <= other.objective and other.bound <= answer.objective


def three_layers() -> ReplanProblem:
    """A model of three layers before any failure."""
    return Model(layers=3).problem("three", 3, 2, 8)


def test_whole_pipelines_keep_to_nodes_and_load() -> None:
    """Two kinds of nodes, three layers of which the first is larger."""
    market = Market(three_layers(), {(0, 2): 4, (2, 3): 4}, [5, 1, 1])
    plan = whole_plan(market, 1, [((2, 1), 2)], 8)
    assert plan is not None and len(plan.pipelines) == 4
    assert plan.stages == ((0, 2), (2, 3)) and plan.flow.tolist() == [[4, 0], [0, 4]]
    assert whole_plan(market, 1, [((2, 1), 2)], 9) is None, "a fifth pipeline has no nodes"
    assert whole_plan(market, 0, [((1, 2), 2)], 2) is None, "nobody holds the last two layers"
    moved = whole_plan(market, 1, [((1, 2), 2)], 8)
    assert moved is not None and sum(moved.sent.values()) >= 4, "four nodes lack a layer each"


def test_an_owner_sends_whole_layers() -> None:
    market = Market(three_layers(), {(0, 3): 1}, [5, 2, 2])
    assert market.loads(10) == [0, 2, 4, 5, 6, 7, 8, 9, 10]
    assert market.patterns(0, 9) == [((5, 0), (2, 4)), ((5, 1), (2, 2))]
