"""From a profiled step to plans that may be executed: problem, solution, its judgement, schedule, prediction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import hydra.utils
import msgspec
from omegaconf import OmegaConf

from experiments.config import LimitsConf, ProblemConf, Settings, SolverConf
from experiments.execution import Planned
from solvers.check import check_plan
from solvers.ir import (
    Hardware,
    Limits,
    OpGraph,
    PlanFile,
    Report,
    Schedule,
    Solution,
    Solver,
    Status,
    SwapPlan,
    SwapProblem,
    Watch,
)
from solvers.ir.codec import plan_file, problem_sha256
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.problem import with_host
from solvers.ir.requests import StepRequests
from solvers.planner import QUICK, Checked, build_solver, require_engine, require_feasible, solve
from solvers.planner import make_problem as problem_of
from solvers.timeline import simulate
from solvers.timeline.segments.headroom import PlanAt, least_of_segments, plan_in_segments

SwapSolver = Solver[SwapProblem, Solution[SwapPlan]]


@dataclass(frozen=True)
class Prepared:
    """A solver's answer, its plan file, and where there is a plan what is needed to execute it and what to expect.

    `again`, where the device has segments: the same, planned for that share of the budget.
    """

    solution: Solution[SwapPlan]
    file: PlanFile
    planned: Planned | None = None
    predicted: Report | None = None
    again: "Callable[[float], Prepared] | None" = None


def make_problem(conf: ProblemConf, graph: OpGraph, hardware: Hardware) -> SwapProblem:
    """The problem whose budget is the settings' bytes, or their fraction of the graph's peak; the host's is theirs."""
    if conf.budget_bytes is not None:
        budget = conf.budget_bytes
    else:
        assert conf.budget_fraction is not None
        budget = int(conf.budget_fraction * max(graph.memory_bytes))
    problem = problem_of(conf.kind, graph, hardware, budget)
    if conf.host_budget_bytes is not None:
        problem = with_host(problem, {"host_budget_bytes": conf.host_budget_bytes})
    assert isinstance(problem, SwapProblem), "ProblemConf knows no other kind"
    return problem


def make_solvers(settings: Settings, start: SwapPlan | None = None) -> dict[str, SwapSolver]:
    """The chosen solvers by name; those that can begin from a plan are given `start`.

    Raises `InvalidInput` on an unknown engine, `EngineMissing` on one that is not installed.
    """
    for name, conf in settings.solver.items():
        engine = getattr(conf, "engine", None)
        if engine is not None:
            require_engine(name, engine)
    return {name: _solver(conf, start) for name, conf in settings.solver.items()}


def make_limits(conf: LimitsConf) -> Limits:
    """The limits that every solver gets."""
    return Limits(time_s=conf.time_s, work=conf.work, gap=conf.gap, threads=conf.threads, seed=conf.seed)


def prepare(
    solver: SwapSolver,
    problem: SwapProblem,
    graph: OpGraph,
    limits: Limits,
    watch: Watch | None = None,
    share: float = 1.0,
) -> Prepared:
    """Solve, judge, lower, judge again, simulate; raises `BayplanError` where a judge finds a violation.

    For a graph that was profiled on an allocator with segments the plan keeps the budget, or a share of it, by these.
    """
    segments = isinstance(graph.requests, StepRequests)
    less = msgspec.structs.replace(problem, budget_bytes=int(share * problem.budget_bytes))
    answer = _held(solver, less, graph, limits, watch) if segments else solve(solver, problem, limits, watch)
    file = plan_file(answer.solution, SwapProblem.KIND, problem_sha256(problem))
    if answer.schedule is None:
        return Prepared(answer.solution, file)
    planned = Planned(graph, problem, answer.schedule)
    again = partial(prepare, solver, problem, graph, limits, watch) if segments else None
    return Prepared(answer.solution, file, planned, simulate(problem, answer.schedule), again)


def _held(
    solver: SwapSolver, problem: SwapProblem, graph: OpGraph, limits: Limits, watch: Watch | None = None
) -> Checked:
    """The plan whose blocks find segments within the budget; without one the answer says the least limit of segments.

    Plans are made for less than the budget and judged within it. Where not even bytes keep the budget, the limit is
    that of the plan for the least bytes; where nobody has that plan, it is one of bytes, and says so.
    """
    made: list[Checked] = []

    def plan_at(by: SwapSolver, within: int) -> Solution[Schedule]:
        answer = solve(by, msgspec.structs.replace(problem, budget_bytes=within), limits, watch)
        made.append(answer)
        require_feasible(answer.solution, within)
        return msgspec.structs.replace(answer.solution, plan=answer.schedule)

    quick_ones = [cast("SwapSolver", build_solver(name, {})) for name in QUICK]
    quick = None if isinstance(solver, tuple(type(one) for one in quick_ones)) else partial(plan_at, quick_ones[0])
    smallest = partial(plan_at, solver) if quick is None else quick
    try:
        found = plan_in_segments(graph, problem.budget_bytes, partial(plan_at, solver), quick)
    except InfeasibleBudget as error:
        return _infeasible(graph, made[0], error, smallest)
    plan = next((one.solution.plan for one in made if one.schedule is found.plan), None)
    return Checked(msgspec.structs.replace(found, plan=plan), found.plan)


def _infeasible(graph: OpGraph, first: Checked, error: InfeasibleBudget, plan_at: PlanAt) -> Checked:
    """The answer without a plan: `first` was that for the whole budget, `plan_at` has the plan of the least bytes."""
    least, reason = error.least_budget_bytes, str(error)
    if first.schedule is None:
        held = None if least is None else least_of_segments(graph, plan_at, least)
        reason += " (of bytes; segments take more)" if held is None else f"; of segments that plan needs {held} bytes"
        least = least if held is None else held
    none = msgspec.structs.replace(
        first.solution,
        plan=None,
        objective=None,
        bound=None,
        status=Status.INFEASIBLE,
        reason=reason,
        least_budget_bytes=least,
    )
    return Checked(none, None)


def best_start(problem: SwapProblem, plans: Mapping[str, SwapPlan]) -> SwapPlan | None:
    """Of other problems' plans the one that is best here; None where none is valid."""
    judged: list[tuple[int, str]] = []
    for name, plan in plans.items():
        solution = Solution(status=Status.FEASIBLE, plan=plan, objective=0, solver=name)
        file = plan_file(solution, SwapProblem.KIND, None)
        objective = check_plan(problem, file).objective_us
        if objective is not None:
            judged.append((objective, name))
    return plans[min(judged)[1]] if judged else None


def _solver(conf: SolverConf, start: SwapPlan | None) -> SwapSolver:
    fields = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.structured(conf)))
    kind = hydra.utils.get_class(fields.pop("_target_"))
    if start is not None and "start" in getattr(kind, "__dataclass_fields__", {}):
        fields["start"] = start
    return cast("SwapSolver", kind(**fields))
