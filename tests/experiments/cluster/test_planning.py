"""Plans after drawn failures: what is asked, gaps and times told by hand, and the figures of several draws."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from experiments.cluster import planning
from experiments.cluster.planning import (
    Answer,
    DrawnFailure,
    answers,
    counted,
    failed_problem,
    figures_of,
    middle,
    timed,
    without_state,
)
from solvers.ir import Limits, ReplanPlan, ReplanProblem, Solution, Status
from solvers.ir.replan import NewPipeline
from tests.experiments.bench.clocks import Clock
from tests.solvers.replan.clusters import before, grid

RUNNING = grid(depth=2, degree=3, layers=4, microbatches=6)
"""Six nodes: three pipelines of two stages."""


def failure(draw: int, lost: int = 2, interval_us: int = 4000) -> DrawnFailure:
    return DrawnFailure(lost=lost, draw=draw, restart_us=77, interval_us=interval_us, bytes_per_s=5)


def planned(
    objective: int, bound: int | None = None, layers: tuple[int, ...] = (2, 2), policy: str = "dynamic"
) -> Solution[ReplanPlan]:
    pipelines = (NewPipeline(layers=layers, nodes=tuple(range(len(layers))), microbatches=6),)
    plan = ReplanPlan(policy=policy, pipelines=pipelines, transfers=None)  # type: ignore[arg-type]
    status = Status.OPTIMAL if objective == bound else Status.FEASIBLE
    return Solution(status=status, plan=plan, solver="s", objective=objective, bound=bound)


NONE: Solution[ReplanPlan] = Solution(status=Status.INFEASIBLE, plan=None, solver="s", reason="nobody holds layer 3")


def answer(name: str, solution: Solution[ReplanPlan], seconds: float = 1.0, gap: float | None = None) -> Answer:
    return Answer(name, solution, seconds, seconds / 2, seconds / 4, gap)


def test_a_draw_decides_who_fails_and_the_others_wait_longer_for_the_next() -> None:
    """Four of six nodes are left, so that one of them fails every 4,000 / 4 us."""
    problem = failed_problem(before(RUNNING), 2, 3, failure(draw=0))
    assert problem.current is not None
    failed = problem.current.failed
    assert len(set(failed)) == 2 and failed == tuple(sorted(failed)) and set(failed) <= set(range(6))
    assert [pipeline.nodes for pipeline in problem.current.pipelines] == [(0, 1), (2, 3), (4, 5)]
    assert (problem.nodes, problem.expected_interval_us) == (4, 1000)
    assert (problem.restart_us, problem.bytes_per_s) == (77, 5)
    assert failed_problem(before(RUNNING), 2, 3, failure(draw=0)) == problem
    drawn = [failed_problem(before(RUNNING), 2, 3, failure(draw)).current for draw in range(12)]
    assert len({one.failed for one in drawn if one is not None}) > 5
    assert failed_problem(before(RUNNING), 2, 3, failure(0, interval_us=3)).expected_interval_us == 1  # not 0


def test_without_a_state_nothing_is_moved_or_waited_for() -> None:
    """Three pipelines ran: gradients are still shared among as many."""
    bare = without_state(RUNNING)
    assert (bare.current, bare.restart_us, bare.bytes_per_s, bare.expected_interval_us) == (None,) * 4
    assert bare.data_parallel == 3
    assert bare.nodes == RUNNING.nodes
    assert without_state(bare).data_parallel is None


def test_the_exact_bound_is_everybodys_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 1 at 25 us and the exact planner at 20, which proves 15: gaps 10/25 and 5/20."""
    told = {planning.PAPER: planned(25, bound=24), planning.EXACT: planned(20, bound=15)}
    monkeypatch.setattr(planning, "_answer", lambda name, problem, limits: answer(name, told[name]))
    paper, exact = answers(RUNNING, Limits())
    assert [(one.solver, one.gap) for one in (paper, exact)] == [("algorithm1", 0.4), ("exact-replan", 0.25)]
    told[planning.EXACT] = planned(20)
    assert [one.gap for one in answers(RUNNING, Limits())] == [None, None]
    told |= {planning.EXACT: planned(20, bound=15), planning.PAPER: NONE}
    assert [one.gap for one in answers(RUNNING, Limits())] == [None, 0.25]


def test_a_planner_is_timed_cold_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold 7 s on the clock and 5 of the processor, again 2 s; the answer is the cold one."""
    objectives = iter([30, 40])

    class Planner:
        """Answers something else each time."""

        def solve(self, problem: ReplanProblem, limits: Limits) -> Solution[ReplanPlan]:
            """The next one."""
            return planned(next(objectives))

    makers: dict[str, Callable[[], Planner]] = {"mine": Planner}
    monkeypatch.setattr(planning, "PLANNERS", makers)
    monkeypatch.setattr(planning, "time", Clock(perf_counter=[7, 100, 2], process_time=[5]))
    found = timed("mine", RUNNING, Limits())
    assert (found.solver, found.solution.objective) == ("mine", 30)
    assert (found.cold_s, found.processor_s, found.again_s) == (7, 5, 2)
    assert found.gap is None


@pytest.mark.parametrize(
    ("values", "median"), [([], None), ([None, None], None), ([3, None, 1], 2), ([5, 1, None, 9], 5)]
)
def test_a_median_is_of_what_is_known(values: list[float | None], median: float | None) -> None:
    assert middle(values) == median


def test_pipelines_alike_are_counted() -> None:
    """Two of three stand in one row, with how many there are."""
    long, short = ((3, 1), 6), ((2, 2), 5)
    pipelines = [
        NewPipeline(layers=layers, nodes=(2 * place, 2 * place + 1), microbatches=microbatches)
        for place, (layers, microbatches) in enumerate((long, short, long))
    ]
    assert counted(pipelines) == [[[3, 1], 6, 2], [[2, 2], 5, 1]]
    assert counted([]) == []


def test_figures_of_draws_are_medians_and_the_worst_gap() -> None:
    """Three draws, of which the second has no plan; the last one's pipelines stand for all."""
    drawn = [
        answer("exact-replan", planned(20, bound=20, policy="reroute"), 4.0, gap=0.0),
        answer("exact-replan", NONE, 8.0),
        answer("exact-replan", planned(40, bound=30, layers=(3, 1)), 1.0, gap=0.25),
    ]
    assert figures_of(drawn) == {
        "statuses": ["feasible", "infeasible", "optimal"],
        "objective_us": 30,
        "bound_us": 25,
        "gap": 0.25,
        "gaps": [0.0, 0.25],
        "cold_s": 4.0,
        "longest_s": 8.0,
        "processor_s": 4.0,
        "again_s": 1.0,
        "pipelines": [[[3, 1], 6, 1]],
        "reasons": ["nobody holds layer 3"],
        "policies": ["dynamic", "reroute"],
    }
    nothing = figures_of(drawn[1:2])
    assert (nothing["objective_us"], nothing["gap"], nothing["pipelines"], nothing["policies"]) == (
        None,
        None,
        None,
        [],
    )
    unsaid = figures_of([answer("exact-replan", replace(NONE, reason=None))])
    assert unsaid["reasons"] == [""]
