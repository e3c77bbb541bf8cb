"""The one facade over all solvers: by name, from a graph and its hardware to a schedule with a proof of its worth.

    solution = planner("milp-swap")(graph, hardware, budget_bytes)

A name stands for a kind of problem and a solver of it; nothing of a room is imported before one of its solvers is asked
for. A new solver is one line of `SOLVERS`; what a kind can do is its row in `solvers.kinds`.
One file: the register of solvers stands beside all that is done with a name.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from solvers.ir.amounts import parse_budget
from solvers.ir.codec import plan_file
from solvers.ir.errors import BayplanError, EngineMissing, InfeasibleBudget, InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.names import unknown
from solvers.ir.problem import Plan, Problem, with_host
from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.ir.report import Report
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits, Solution, Solver, Status, Watch
from solvers.kinds import KINDS, kinds_with, load
from solvers.timeline.segments.headroom import plan_in_segments
from solvers.timeline.simulate import simulate

if TYPE_CHECKING:
    from solvers.layout.chunks import Packing as Packing
    from solvers.layout.fsdp2 import Fsdp2Settings as Fsdp2Settings
    from solvers.replan.ahead import PlanCache as PlanCache

Planner = Callable[[OpGraph, Hardware, int | str], Solution[Schedule]]
AnySolver = Solver[Any, Solution[Any]]


@dataclass(frozen=True)
class SolverEntry:
    """A solver as users name it: the kind that it solves, its class as `module:Class`, what it is in one line.

    `exact`: it finds the optimum of every tiny instance; tests hold it to that.
    """

    kind: str
    target: str
    about: str
    exact: bool = False


SOLVERS: dict[str, SolverEntry] = {
    "greedy-swap": SolverEntry("swap", "solvers.swap:GreedySwap", "SmartSwap's heuristic, in milliseconds, no bound"),
    "capuchin-swap": SolverEntry("swap", "solvers.swap:CapuchinSwap", "Capuchin's policy: longest free time first"),
    "milp-swap": SolverEntry(
        "swap", "solvers.swap.milp:MilpSwap", "near-optimal with a proven bound, exact if small", exact=True
    ),
    "dp": SolverEntry("partition", "solvers.partition:Dp", "the least slowest stage, exactly", exact=True),
    "greedy-lynx": SolverEntry("partition", "solvers.partition:GreedyLynx", "Lynx's loop: slowest stage to fastest"),
    "balanced": SolverEntry("partition", "solvers.partition:Balanced", "the layers as evenly as possible"),
    "heu": SolverEntry("recompute-layer", "solvers.recompute.layer:Heu", "Lynx-HEU: the best policy for all layers"),
    "full": SolverEntry("recompute-layer", "solvers.recompute.layer:Full", "every layer again from its input"),
    "selective": SolverEntry("recompute-layer", "solvers.recompute.layer:Selective", "the attention core again"),
    "uniform": SolverEntry("recompute-layer", "solvers.recompute.layer:Uniform", "Megatron-Uniform: chunks of a layer"),
    "block": SolverEntry("recompute-layer", "solvers.recompute.layer:Block", "Megatron-Block: n layers again"),
    "checkmate-layer": SolverEntry("recompute-layer", "solvers.recompute.layer:CheckmateLayer", "best without overlap"),
    "adapipe": SolverEntry("recompute-layer", "solvers.recompute.layer:AdaPipe", "a knapsack of units per layer"),
    "opt": SolverEntry("recompute-graph", "solvers.recompute.graph:Opt", "near-optimal with a certified gap, at scale"),
    "opt-milp": SolverEntry(
        "recompute-graph", "solvers.recompute.graph:OptMilp", "one linear model, exact if small", exact=True
    ),
    "opt-intervals": SolverEntry("recompute-graph", "solvers.recompute.graph:OptIntervals", "retention intervals"),
    "checkmate": SolverEntry("recompute-graph", "solvers.recompute.graph:Checkmate", "the best plan without overlap"),
    "lynx": SolverEntry("pipeline", "solvers.partition.baselines:Lynx", "Lynx: HEU a stage, greedy partition, stalls"),
    "bayplan": SolverEntry("pipeline", "solvers.partition.bayplan:Bayplan", "whole steps together, with a bound"),
    "full-step": SolverEntry("pipeline", "solvers.partition.baselines:FullStep", "every layer again, even stages"),
    "selective-step": SolverEntry("pipeline", "solvers.partition.baselines:SelectiveStep", "the attention core again"),
    "uniform-step": SolverEntry(
        "pipeline", "solvers.partition.baselines:UniformStep", "chunks of a layer, even stages"
    ),
    "block-step": SolverEntry("pipeline", "solvers.partition.baselines:BlockStep", "n layers again, even stages"),
    "checkmate-step": SolverEntry("pipeline", "solvers.partition.baselines:CheckmateStep", "best without overlap"),
    "adapipe-step": SolverEntry("pipeline", "solvers.partition.baselines:AdaPipeStep", "AdaPipe: knapsacks and dp"),
    "heu-step": SolverEntry("pipeline", "solvers.partition.baselines:HeuStep", "Lynx-HEU in even stages, and stalls"),
    "algorithm1": SolverEntry("replan", "solvers.replan:Algorithm1", "Chameleon's heuristic, in ms, no bound"),
    "exact-replan": SolverEntry(
        "replan", "solvers.replan:ExactReplan", "the best decision, with a proof of how good", exact=True
    ),
    "reroute": SolverEntry("replan", "solvers.replan:Reroute", "keep the pipelines, share the lost microbatches"),
    "oobleck": SolverEntry("replan", "solvers.replan:Oobleck", "Oobleck: templates, borrowed nodes, merged pipelines"),
    "recycle": SolverEntry("replan", "solvers.replan:Recycle", "ReCycle: rerouted microbatches fill bubbles"),
    "symmetric": SolverEntry("replan", "solvers.replan:Symmetric", "Varuna: alike pipelines only, others idle"),
    "search": SolverEntry("layout", "solvers.layout.search:Search", "ProTrain: the best of its four numbers, in ms"),
    "exact-layout": SolverEntry(
        "layout", "solvers.layout.exact.solver:ExactLayout", "any layout, with a proof of how good", exact=True
    ),
    "zero3-offload": SolverEntry(
        "layout", "solvers.layout.baselines:Zero3Offload", "DeepSpeed-like: all offloaded, all checkpointed, tuned"
    ),
    "colossal-static": SolverEntry(
        "layout", "solvers.layout.baselines:ColossalStatic", "Gemini-like: all offloaded, checkpointed, least buffers"
    ),
    "fsdp": SolverEntry("layout", "solvers.layout.baselines:Fsdp", "FSDP-like: offloaded, all kept or checkpointed"),
    "joint": SolverEntry("joint", "solvers.joint:Joint", "keep, swap or recompute together, with a certified bound"),
    "greedy-joint": SolverEntry("joint", "solvers.joint:GreedyJoint", "by price per byte, in one pass, no bound"),
}
QUICK = ("greedy-swap", "capuchin-swap")
"""Solvers that answer in milliseconds; the first looks for a slower one's room in segments."""
MADE, LOWERED = "made from a graph", "turned into a schedule"


def planner(
    name: str,
    parameters: Mapping[str, object] | None = None,
    limits: Limits | None = None,
    watch: Watch | None = None,
    host: Mapping[str, object] | None = None,
    gaps: bool = False,
) -> Planner:
    """The planner of that name: makes the problem, solves it within `limits`, lowers the plan, and has both judged.

    It takes a graph, hardware and a budget: whole bytes, or text such as "8GiB", or "55%" of the graph's peak.
    `parameters` are fields of the solver's class; `host` the problem's fields of host memory, such as
    `{"host_budget_bytes": 8 << 30}`. A swap plan for a graph that was profiled on an allocator with segments keeps the
    budget by these. With `gaps` a swap planner sends away what a graph with its gaps apart has stand-ins for
    (`solvers.timeline.gaps`). Raises `InvalidInput` on an unknown name or parameter, at once; the planner raises
    `InfeasibleBudget` where no plan keeps the budget, with the least budget that one keeps. Where the limits ended the
    search before a plan was found, the answer's status is UNKNOWN and its plan None.
    """
    entry, solver = solver_entry(name), build_solver(name, parameters or {})

    def by(solver: AnySolver, graph: OpGraph, hardware: Hardware, budget_bytes: int) -> Solution[Schedule]:
        problem = with_host(make_problem(entry.kind, graph, hardware, budget_bytes, gaps=gaps), host or {})
        answer = solve(solver, problem, limits or Limits(), watch)
        require_feasible(answer.solution, budget_bytes)
        schedule = answer.schedule
        if schedule is None and answer.solution.plan is not None:
            schedule = lower_plan(problem, answer.solution.plan)
        return msgspec.structs.replace(answer.solution, plan=schedule)

    def plan(graph: OpGraph, hardware: Hardware, budget: int | str) -> Solution[Schedule]:
        budget_bytes = _asked(graph, hardware, budget)
        if entry.kind != "swap":
            return by(solver, graph, hardware, budget_bytes)
        quick = None if name in QUICK else partial(by, build_solver(QUICK[0], {}), graph, hardware)
        return plan_in_segments(graph, budget_bytes, partial(by, solver, graph, hardware), quick)

    return plan


def _asked(graph: OpGraph, hardware: Hardware, budget: int | str) -> int:
    """The budget in bytes; raises `InvalidInput` where the three are something else."""
    if not isinstance(graph, OpGraph):
        raise InvalidInput(f"graph is a {type(graph).__name__}: give an OpGraph, as profile_step returns")
    if not isinstance(hardware, Hardware):
        raise InvalidInput(
            f"hardware is a {type(hardware).__name__}: give a Hardware, as sim.hardware or read_hardware('sim-small')"
        )
    if isinstance(budget, str):
        return parse_budget(budget, max(graph.memory_bytes), "budget")
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise InvalidInput(f"the budget is {budget!r}: give whole bytes, or text such as '8GiB' or '55%'")
    return budget


@dataclass(frozen=True)
class Checked:
    """A solver's answer that the judge has passed, with the schedule of its plan where there is one."""

    solution: Solution[Any]
    schedule: Schedule | None


def solve(solver: AnySolver, problem: Problem, limits: Limits, watch: Watch | None = None) -> Checked:
    """Solve, judge, lower, and judge again; raises `BayplanError` where a judge finds fault.

    There is no schedule where there is no plan, and for kinds that `solvers.kinds` lowers to none.
    """
    solution = solver.solve(problem, limits, watch)
    require_clean(problem, solution)
    if solution.plan is None or KINDS[problem.KIND].judge_schedule is None:
        return Checked(solution, None)
    schedule = lower_plan(problem, solution.plan)
    _require_clean_schedule(problem, solution.solver, schedule)
    return Checked(solution, schedule)


def require_feasible(solution: Solution[Any], budget_bytes: int) -> None:
    """Refuse a budget that the solver proved too small: `InfeasibleBudget`, with the least that is not."""
    if solution.status is not Status.INFEASIBLE:
        return
    least = solution.least_budget_bytes
    at_least = "more" if least is None else f"at least {least} bytes"
    raise InfeasibleBudget(solution.reason or f"no plan keeps {budget_bytes} bytes: give {at_least}", least)


def require_clean(problem: Problem, solution: Solution[Any], what: str = "plan") -> None:
    """Have the independent judge look at a plan: a fault of ours must never be executed, nor told as a result.

    Raises `BayplanError`, which calls the plan `what`; an answer without a plan passes.
    """
    from solvers.check import check_plan

    if solution.plan is not None:
        _require_none(solution.solver, what, check_plan(problem, plan_file(solution, problem.KIND, None)).violations)


def require_valid(problem: Problem, plan: Plan, what: str) -> None:
    """Have the judge look at a decision alone, whose objective nobody claims; raises `BayplanError`."""
    from solvers.check.plan import judge_of

    _require_none(what, "plan", judge_of(problem.KIND).decision(problem, plan).violations)


def _require_clean_schedule(problem: Problem, solver: str, schedule: Schedule) -> None:
    from solvers.check import check_schedule

    _require_none(solver, "schedule", check_schedule(problem, schedule).violations)


def _require_none(solver: str, what: str, violations: tuple[str, ...]) -> None:
    if violations:
        raise BayplanError(
            f"the {what} of {solver} does not pass its check ({violations[0]}): report this and choose another solver"
        )


def solver_names(kind: str | None = None) -> list[str]:
    """The names of all solvers, or of one kind's, in the order of the register."""
    return [name for name, entry in SOLVERS.items() if kind in (None, entry.kind)]


def solver_entry(name: str) -> SolverEntry:
    """What the register says about a name; raises `InvalidInput` naming the nearest one."""
    if name not in SOLVERS:
        raise unknown("solver", name, SOLVERS)
    return SOLVERS[name]


def solver_parameters(name: str) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a solver's class, by name; this imports its room."""
    return {field.name: field for field in dataclasses.fields(load(solver_entry(name).target)) if field.init}


def build_solver(name: str, parameters: Mapping[str, object]) -> AnySolver:
    """The solver of that name with these fields; raises `InvalidInput` on an unknown field."""
    known = solver_parameters(name)
    for key in parameters:
        if key not in known:
            raise unknown(f"parameter of {name}", key, known)
    solver: AnySolver = load(SOLVERS[name].target)(**parameters)
    return solver


def require_engine(name: str, engine: str) -> None:
    """Refuse an engine that is unknown or unused by the solver (`InvalidInput`), or absent (`EngineMissing`)."""
    from solvers.engines.choice import NAMES, PACKAGES, is_present

    if "engine" not in solver_parameters(name):
        raise InvalidInput(f"{name} uses no engine, so {engine!r} means nothing to it: leave the engine out")
    if engine not in NAMES:
        raise unknown("engine", engine, NAMES)
    if engine != "auto" and not is_present(engine):
        package = PACKAGES[engine]
        raise EngineMissing(f"engine {engine} needs {package}, which is not installed: pip install {package}")


def make_problem(
    kind: str, graph: OpGraph, hardware: Hardware, budget_bytes: int | None, *, gaps: bool = False
) -> Problem:
    """The problem of that kind; without a budget, the device's memory. Raises `InvalidInput` where none can be made.

    A swap problem's may be of the graph's `gaps`, if it has them apart.
    """
    make = load(_entry(kind, "make", MADE))
    problem: Problem = make(graph, hardware, budget_bytes, **({"gaps": True} if gaps else {}))
    return problem


def require_makeable(kind: str) -> None:
    """Refuse a kind whose problems cannot be made from a graph (`InvalidInput`)."""
    _entry(kind, "make", MADE)


def lower_plan(problem: Problem, plan: Plan) -> Schedule:
    """The schedule that carries a plan out; raises `InvalidInput` where the kind has none or the plan is invalid."""
    schedule: Schedule = load(_entry(problem.KIND, "lower", LOWERED))(problem, plan)
    return schedule


def simulate_plan(problem: Problem, plan: Plan) -> tuple[Report, Schedule | None]:
    """What a valid plan would do, and its schedule where that was simulated; raises `InvalidInput` as `lower_plan`."""
    whole = KINDS[problem.KIND].simulate
    if whole is not None:
        report: Report = load(whole)(problem, plan)
        return report, None
    schedule = lower_plan(problem, plan)
    return simulate(problem, schedule), schedule


def plan_ahead(
    running: ReplanProblem, name: str = "algorithm1", limits: Limits | None = None, most_losses: int = 1
) -> "PlanCache":
    """Answers to the next failures of a running state, likely ones first: a failure then finds its plan in a table.

    `name` is a solver of the kind `replan`; up to `most_losses` nodes fail at once. What `limits.time_s` leaves
    unanswered, the cache's `fill` or `solve` goes on with. Raises `InvalidInput` where `running` has no `current`.
    """
    from solvers.replan.ahead import PlanCache

    kind = solver_entry(name).kind
    if kind != running.KIND:
        fitting = " or ".join(solver_names(running.KIND))
        raise InvalidInput(f"{name} solves {kind} problems, but failures make {running.KIND} ones: choose {fitting}")
    cache = PlanCache(build_solver(name, {}))
    cache.fill(running, limits or Limits(), most_losses)
    return cache


def after_failure(running: ReplanProblem, failed: tuple[int, ...]) -> ReplanProblem:
    """The problem that the failure of these nodes makes of a running state, as `plan_ahead` foresees it."""
    from solvers.replan.ahead import after_failure as failing

    return failing(running, failed)


def lower_step(problem: ReplanProblem, plan: ReplanPlan) -> Schedule:
    """One training step of a valid plan, node by node: passes, messages, all-reduces, updates (formats.md 11.9)."""
    from solvers.replan.step_schedule import lower_step as lowered

    return lowered(problem, plan)


def pack_chunks(parameters: Sequence[tuple[str, int, tuple[int, ...], bool]], chunk_bytes: int | None) -> "Packing":
    """Parameters (name, bytes, blocks that use it, trainable) in chunks of a size, or of the best one."""
    from solvers.layout.chunks import Parameter, packed

    return packed([Parameter(*one) for one in parameters], chunk_bytes)


def layout_problem(hardware: Hardware, **measured: Any) -> LayoutProblem:
    """The layout problem of one device that runs a measured step: the fields of `MeasuredLayout`.

    Raises `InvalidInput` where none can be made.
    """
    from solvers.layout.measured_profile import MeasuredLayout, problem_of

    return problem_of(MeasuredLayout(**measured), hardware)


def lower_to_fsdp2(problem: LayoutProblem, plan: LayoutPlan) -> "Fsdp2Settings":
    """What of a valid layout plan PyTorch's FSDP2 can follow, block by block, and what it cannot."""
    from solvers.layout.fsdp2 import lower_to_fsdp2 as lowered

    return lowered(problem, plan)


def _entry(kind: str, entry: str, what: str) -> str:
    """An entry of the kind's row; raises `InvalidInput` for an unknown kind, and for one that has none."""
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    target: str | None = getattr(KINDS[kind], entry)
    if target is None:
        raise InvalidInput(f"{kind} problems cannot be {what}: this works for {', '.join(kinds_with(entry))}")
    return target
