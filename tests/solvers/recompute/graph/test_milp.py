"""opt-milp against walking memory states, on every engine: same optimum, same infeasibility, clean plans."""

import pytest

from solvers.check import check_plan
from solvers.engines.choice import is_present
from solvers.ir import Limits, RecomputeGraphPlan, RecomputeGraphProblem, Solution, Status
from solvers.ir.codec import plan_file
from solvers.ir.solution import INTERRUPTED_EARLY
from solvers.recompute.graph.answers import Search
from solvers.recompute.graph.checkmate import Checkmate
from solvers.recompute.graph.intervals import OptIntervals
from solvers.recompute.graph.milp import OptMilp
from solvers.recompute.graph.replay import instance, replay_runs, retained
from solvers.recompute.graph.stages import stage_model
from tests.solvers.recompute.graph.brute_force import general, layered, optimum, random_problem

ENGINES = [
    pytest.param(name, marks=pytest.mark.skipif(not is_present(name), reason=f"{name} is not installed"))
    for name in ("cpsat", "highs", "gurobi")
]


def tiny(seed: int) -> RecomputeGraphProblem:
    return general(seed) if seed % 2 else layered(seed, 2)


def require_true(problem: RecomputeGraphProblem, solution: Solution[RecomputeGraphPlan], best: int | None) -> None:
    judged = check_plan(problem, plan_file(solution, problem.KIND, None))
    if best is None:
        assert solution.status is Status.INFEASIBLE
        assert [found for found in judged.violations if "no decision" not in found] == []
        return
    assert judged.violations == ()
    assert (solution.status, solution.objective, solution.bound) == (Status.OPTIMAL, best, best)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_optimum_on_every_engine_is_the_best_walk_through_memory(engine: str) -> None:
    """104 instances on each; recomputation helps in most, and 20 have no plan."""
    feasible = helped = 0
    for seed in range(104):
        problem = tiny(seed)
        best = optimum(problem)
        require_true(problem, OptMilp(engine=engine).solve(problem, Limits(time_s=60)), best)
        feasible += best is not None
        helped += best is not None and best > instance(problem).base
    assert feasible >= 60 and helped >= 50


@pytest.mark.parametrize("seeds", [range(200, 240), pytest.param(range(240, 300), marks=pytest.mark.soak)])
def test_another_hundred_with_three_layers_among_them(seeds: range) -> None:
    for seed in seeds:
        problem = random_problem(seed)
        require_true(problem, OptMilp().solve(problem, Limits(time_s=60)), optimum(problem))


def test_an_optimal_plan_is_a_solution_of_the_model_at_its_objective() -> None:
    """So the model is no tighter than the semantics, and F and U are what the replay says; in coarse units too."""
    checked = 0
    for seed in range(60):
        problem = tiny(seed)
        solution = OptMilp().solve(problem, Limits(time_s=60))
        if solution.plan is None:
            continue
        given = instance(problem)
        sets: list[set[int]] = [set() for _ in problem.ops]
        for t, i in solution.plan.compute:
            sets[t].add(i)
        runs = retained(given, sets)
        for integral in (False, True):
            model = stage_model(given, integral=integral)
            x = model.start(given, runs)
            assert x is not None
            assert model.model.violations(x) == ()
            assert model.model.objective(x) == solution.objective == replay_runs(given, runs).objective_us
        checked += 1
    assert checked > 30


def test_what_the_model_cannot_hold_is_said_and_the_bound_is_the_base() -> None:
    problem = layered(0, 2)
    solution = OptMilp(most_columns=10).solve(problem, Limits())
    assert solution.status is Status.FEASIBLE
    assert solution.bound == solution.base
    assert solution.reason is not None and "more than 10" in solution.reason


def test_tiny_limits_are_kept_and_a_watch_stops() -> None:
    problem = layered(0, 3)
    assert OptMilp().solve(problem, Limits(time_s=0.0)).status is not Status.OPTIMAL
    seen: list[tuple[float | None, float | None]] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append((incumbent, bound))
        return True

    stopped = OptMilp().solve(problem, Limits(), watch)
    assert len(seen) == 1
    assert stopped.status is Status.FEASIBLE


@pytest.mark.parametrize("solver", [OptMilp(), Checkmate(), OptIntervals()], ids=lambda solver: solver.NAME)
@pytest.mark.parametrize("patience", [1, 3])
def test_an_interrupt_keeps_the_best_plan(solver: OptMilp | Checkmate | OptIntervals, patience: int) -> None:
    """Ctrl-C at the first news, which is the first plan; and later, within the engine."""
    seen: list[float] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(incumbent or 0)
        if len(seen) == patience:
            raise KeyboardInterrupt
        return False

    solution = solver.solve(layered(0, 3), Limits(), watch)
    assert solution.plan is not None and solution.objective is not None
    assert solution.objective <= seen[0]


@pytest.mark.parametrize("solver", [OptMilp(), OptIntervals()], ids=lambda solver: solver.NAME)
def test_an_interrupt_before_the_first_plan_is_said_so(
    solver: OptMilp | OptIntervals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "offer", interrupted)
    monkeypatch.setattr(f"{type(solver).__module__}.trivial", lambda search: None)
    solution = solver.solve(layered(0, 3), Limits())
    assert solution.status is Status.UNKNOWN and solution.plan is None
    assert solution.reason == INTERRUPTED_EARLY


def test_progress_shows_true_bounds() -> None:
    problem = layered(0, 3)
    best, shown = optimum(problem), []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        shown.append((incumbent, bound))
        return False

    for solver in (OptMilp(), OptMilp(engine="highs"), Checkmate(), OptIntervals()):
        solver.solve(problem, Limits(), watch)
    assert best is not None
    assert all(bound is not None and bound <= best for _, bound in shown)
    assert all(incumbent is None or incumbent >= best - 1e-6 * best for incumbent, _ in shown)
