"""From a profiled step to plans that may be executed: problem, solution, its judgement, schedule, prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import hydra.utils
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
    Solution,
    Solver,
    Status,
    SwapPlan,
    SwapProblem,
    Watch,
)
from solvers.ir.codec import plan_file, problem_sha256
from solvers.ir.problem import with_host
from solvers.planner import make_problem as problem_of
from solvers.planner import require_engine, solve
from solvers.timeline import simulate

SwapSolver = Solver[SwapProblem, Solution[SwapPlan]]


@dataclass(frozen=True)
class Prepared:
    """A solver's answer, its plan file, and where there is a plan what is needed to execute it and what to expect."""

    solution: Solution[SwapPlan]
    file: PlanFile
    planned: Planned | None = None
    predicted: Report | None = None


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
    solver: SwapSolver, problem: SwapProblem, graph: OpGraph, limits: Limits, watch: Watch | None = None
) -> Prepared:
    """Solve, judge, lower, judge again, simulate; raises `BayplanError` where a judge finds a violation."""
    answer = solve(solver, problem, limits, watch)
    file = plan_file(answer.solution, SwapProblem.KIND, problem_sha256(problem))
    if answer.schedule is None:
        return Prepared(answer.solution, file)
    planned = Planned(graph, problem, answer.schedule)
    return Prepared(answer.solution, file, planned, simulate(problem, answer.schedule))


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
