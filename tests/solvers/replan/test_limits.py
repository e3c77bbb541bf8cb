"""Very deep models and very many nodes: every solver ends soon after its limit, with its best plan until then."""

import time

import msgspec
import pytest

from solvers.check.replan.judge import judge_replan
from solvers.ir import Limits, ReplanPlan, ReplanProblem, Solution, Solver, Status
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.answers import why_none
from solvers.replan.estimate.objective import step_us
from solvers.replan.exact.questions import Questions
from solvers.replan.exact.solver import ExactReplan
from solvers.replan.holding import holds
from solvers.replan.instances import Model
from solvers.replan.oobleck import Oobleck
from solvers.replan.oobleck_templates import templates_of
from solvers.replan.symmetric import Symmetric
from solvers.replan.transfer.restore import Restorer
from tests.solvers.replan.clusters import before, grid

HEURISTICS: list[Solver[ReplanProblem, Solution[ReplanPlan]]] = [Algorithm1(), Oobleck(), Symmetric()]


def deep(layers: int) -> ReplanProblem:
    """As many nodes and stages as layers."""
    problem = Model(layers=layers).problem(f"deep {layers}", 1, layers, layers)
    return msgspec.structs.replace(problem, max_depth=layers, data_parallel=8, memory_bytes=1 << 60)


def judged(problem: ReplanProblem, answer: Solution[ReplanPlan]) -> int:
    assert answer.plan is not None
    verdict = judge_replan(problem, answer.plan)
    assert (verdict.violations, verdict.objective_us) == ((), answer.objective)
    return verdict.objective_us or 0


@pytest.mark.parametrize("solver", HEURISTICS, ids=repr)
def test_two_hundred_layers_and_stages_take_seconds(solver: Solver[ReplanProblem, Solution[ReplanPlan]]) -> None:
    """Oobleck's templates took 46 s when each half looked at numbers of layers that it cannot hold."""
    problem = deep(200)
    answer = solver.solve(problem, Limits(time_s=60))
    assert judged(problem, answer) and answer.reason is None


@pytest.mark.parametrize("solver", HEURISTICS, ids=repr)
def test_a_hundred_thousand_nodes_take_seconds(solver: Solver[ReplanProblem, Solution[ReplanPlan]]) -> None:
    problem = Model(layers=80).problem("wide", 16, 6250, 100_000)
    answer = solver.solve(problem, Limits(time_s=60))
    assert answer.plan is not None and answer.reason is None


@pytest.mark.parametrize("solver", HEURISTICS, ids=repr)
def test_a_thousand_layers_and_stages_end_with_the_limit(solver: Solver[ReplanProblem, Solution[ReplanPlan]]) -> None:
    problem = deep(1000)
    began = time.process_time()
    answer = solver.solve(problem, Limits(time_s=1.5))
    assert time.process_time() - began < 4
    assert answer.plan is not None or answer.reason is not None
    assert answer.plan is None or answer.reason in (None, "the limits ended the search")


@pytest.mark.parametrize("solver", HEURISTICS, ids=repr)
def test_without_time_the_limits_are_named(solver: Solver[ReplanProblem, Solution[ReplanPlan]]) -> None:
    answer = solver.solve(deep(30), Limits(time_s=0))
    assert answer.status is Status.UNKNOWN
    assert "give more time" in (answer.reason or "")


class Looks:
    """Ends a search after so many looks at the clock."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_templates_known_in_time_are_used_and_the_next_search_goes_on() -> None:
    """What is unfinished is not remembered as if it were all."""
    problem = before(grid(4, 8, 47, 96, memory_bytes=20_000))
    some = templates_of(problem, 1, Looks(60))
    every = templates_of(problem, 1)
    assert 0 < len(some) < len(every) and every[: len(some)] == some
    problem = msgspec.structs.replace(problem, layers=46)
    first = Oobleck().splits(problem, Looks(60))
    then = Oobleck().splits(problem)
    assert first is not None and then is not None
    assert step_us(problem, then) < step_us(problem, first)


def test_the_best_grid_until_then() -> None:
    problem = before(grid(4, 8, 47, 96, memory_bytes=20_000))
    first = Symmetric().splits_of(problem, 32, Looks(1))
    then = Symmetric().splits_of(problem, 32)
    assert first is not None and then is not None
    assert step_us(problem, then) < step_us(problem, first)
    assert Symmetric().splits_of(msgspec.structs.replace(problem, layers=46), 32, Looks(0)) is None


def deep_after(layers: int) -> ReplanProblem:
    """Pipelines of 20 nodes, one of which is lost; any depth may be planned."""
    problem = Model(layers=layers).after(f"deep {layers}", 20, layers // 20, layers, (3,))
    return msgspec.structs.replace(problem, max_depth=layers, memory_bytes=1 << 60)


@pytest.mark.parametrize("layers", [200, pytest.param(1000, marks=pytest.mark.soak)])
def test_pipelines_of_any_depth_are_proven_in_seconds(layers: int) -> None:
    answer = ExactReplan().solve(deep(layers), Limits(time_s=60))
    assert judged(deep(layers), answer) and answer.status is Status.OPTIMAL


@pytest.mark.parametrize("layers", [200, 400])
def test_the_exact_search_ends_with_its_limit_no_worse_than_the_heuristics(layers: int) -> None:
    """16.8 s were taken at a limit of 10 s for 200 layers."""
    problem = deep_after(layers)
    began = time.process_time()
    answer = ExactReplan().solve(problem, Limits(time_s=1.5))
    assert time.process_time() - began < 30
    objective = judged(problem, answer)
    assert answer.reason == "the limits ended the search"
    assert answer.bound is not None and 0 < answer.bound < objective
    for solver in HEURISTICS:
        other = solver.solve(problem, Limits(time_s=0.1))
        assert other.objective is None or answer.bound <= other.objective
    quick = Algorithm1().solve(problem, Limits(time_s=60)).objective
    assert quick is not None and objective <= quick


def test_nodes_are_not_chosen_where_that_would_end_long_after_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """90,000 nodes of 11,000 kinds took 40 s at a limit of 1 s; rerouting stands where there is no time for another."""
    problem = Model(layers=32).after("late", 4, 8, 64, (3,))
    soon = ExactReplan().solve(problem, Limits(time_s=60))
    assert soon.plan is not None and soon.plan.policy == "dynamic"
    monkeypatch.setattr(Restorer, "about_s", lambda *_: 1e6)
    monkeypatch.setattr(Questions, "possible", False)
    late = ExactReplan().solve(problem, Limits(time_s=60))
    assert late.plan is not None and late.plan.policy == "reroute"
    assert late.bound is not None and late.bound <= judged(problem, soon) < judged(problem, late)


def test_who_watches_a_deep_search_can_end_it() -> None:
    problem = deep_after(200)
    began = time.process_time()
    answer = ExactReplan().solve(problem, Limits(time_s=60), lambda _incumbent, _bound, elapsed_s: elapsed_s >= 1)
    assert time.process_time() - began < 4
    assert judged(problem, answer) and answer.reason == "the limits ended the search"


@pytest.mark.parametrize("limit", [0.0, 0.05, 0.5])
def test_a_bound_is_true_wherever_the_search_is_ended(limit: float) -> None:
    for seed in range(6):
        source = Model(layers=40 + seed).after("ended", 4, 6 + seed, 60 + 12 * seed, (seed,))
        ended, best = (ExactReplan().solve(source, Limits(time_s=time_s)) for time_s in (limit, 60.0))
        assert best.objective is not None and best.bound is not None
        assert ended.bound is not None and ended.bound <= best.objective
        assert ended.objective is None or ended.objective >= best.bound


def test_how_much_memory_five_hundred_layers_need_is_known_in_seconds() -> None:
    problem = msgspec.structs.replace(deep(500), memory_bytes=64 << 30)
    reason = why_none(problem) or ""
    need = int(reason.split("exactly ")[1].split(" ")[0])
    assert holds(msgspec.structs.replace(problem, memory_bytes=need))
    assert not holds(msgspec.structs.replace(problem, memory_bytes=need - 1))
