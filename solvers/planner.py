"""The one facade over all solvers: by name, from a graph and its hardware to a schedule with a proof of its worth.

    solution = planner("milp-swap")(graph, hardware, budget_bytes)

A name stands for a kind of problem and a solver of it; nothing of a room is imported before one of its solvers is asked
for. A new solver is one line of `SOLVERS`, a new kind that ends in a schedule one line of `ROOMS`.
"""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from solvers.ir.codec import PROBLEMS, Plan, Problem, plan_file
from solvers.ir.errors import BayplanError, EngineMissing, InfeasibleBudget, InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.names import unknown
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits, Solution, Solver, Status, Watch

Planner = Callable[[OpGraph, Hardware, int], Solution[Schedule]]
AnySolver = Solver[Any, Solution[Any]]


@dataclass(frozen=True)
class SolverEntry:
    """A solver as users name it: the kind that it solves, its class as `module:Class`, what it is in one line."""

    kind: str
    target: str
    about: str


@dataclass(frozen=True)
class Room:
    """How a kind's problems are made from a graph, and how its plans become schedules; both as `module:function`.

    `lower` is None where a plan says too little for a schedule: that of a layer does not tell which microbatch, that
    of a layout which tensors.
    """

    make: str
    lower: str | None = None


SOLVERS: dict[str, SolverEntry] = {
    "greedy-swap": SolverEntry("swap", "solvers.swap:GreedySwap", "SmartSwap's heuristic, in milliseconds, no bound"),
    "capuchin-swap": SolverEntry("swap", "solvers.swap:CapuchinSwap", "Capuchin's policy: longest free time first"),
    "milp-swap": SolverEntry("swap", "solvers.swap.milp:MilpSwap", "near-optimal with a proven bound, exact if small"),
    "dp": SolverEntry("partition", "solvers.partition:Dp", "the least slowest stage, exactly"),
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
    "opt-milp": SolverEntry("recompute-graph", "solvers.recompute.graph:OptMilp", "one linear model, exact if small"),
    "opt-intervals": SolverEntry("recompute-graph", "solvers.recompute.graph:OptIntervals", "retention intervals"),
    "checkmate": SolverEntry("recompute-graph", "solvers.recompute.graph:Checkmate", "the best plan without overlap"),
    "algorithm1": SolverEntry(
        "replan", "solvers.replan:Algorithm1", "Chameleon's heuristic, in milliseconds, no bound"
    ),
    "exact-replan": SolverEntry("replan", "solvers.replan:ExactReplan", "the best decision, with a proof of how good"),
    "reroute": SolverEntry("replan", "solvers.replan:Reroute", "keep the pipelines, share the lost microbatches"),
    "oobleck": SolverEntry("replan", "solvers.replan:Oobleck", "Oobleck: templates, borrowed nodes, merged pipelines"),
    "recycle": SolverEntry("replan", "solvers.replan:Recycle", "ReCycle: rerouted microbatches fill bubbles"),
    "symmetric": SolverEntry("replan", "solvers.replan:Symmetric", "Varuna: alike pipelines only, others idle"),
    "search": SolverEntry("layout", "solvers.layout.search:Search", "ProTrain: the best of its four numbers, in ms"),
    "exact-layout": SolverEntry("layout", "solvers.layout.exact:ExactLayout", "any layout, with a proof of how good"),
    "zero3-offload": SolverEntry(
        "layout", "solvers.layout.baselines:Zero3Offload", "DeepSpeed-like: all offloaded, all checkpointed, tuned"
    ),
    "colossal-static": SolverEntry(
        "layout",
        "solvers.layout.baselines:ColossalStatic",
        "Gemini-like: all offloaded, all checkpointed, least buffers",
    ),
    "fsdp": SolverEntry(
        "layout", "solvers.layout.baselines:Fsdp", "FSDP-like: all offloaded, all kept or checkpointed"
    ),
}
ROOMS: dict[str, Room] = {
    "recompute-graph": Room("solvers.recompute.graph.make:make_graph_problem", "solvers.recompute.graph.lower:lower"),
    "swap": Room("solvers.swap.make:make_swap_problem", "solvers.swap.lower:lower"),
    "recompute-layer": Room("solvers.recompute.layer.measured:make_layer_problem"),
    "layout": Room("solvers.layout.measured:make_layout_problem"),
}
MADE, LOWERED = "made from a graph", "turned into a schedule"


def planner(
    name: str,
    parameters: Mapping[str, object] | None = None,
    limits: Limits | None = None,
    watch: Watch | None = None,
) -> Planner:
    """The planner of that name: makes the problem, solves it within `limits`, lowers the plan, and has both judged.

    `parameters` are fields of the solver's class. Raises `InvalidInput` on an unknown name or parameter, at once; the
    planner raises `InfeasibleBudget` where no plan keeps the budget, with the least budget that one keeps. Where the
    limits ended the search before a plan was found, the answer's status is UNKNOWN and its plan None.
    """
    entry, solver = solver_entry(name), build_solver(name, parameters or {})

    def plan(graph: OpGraph, hardware: Hardware, budget_bytes: int) -> Solution[Schedule]:
        problem = make_problem(entry.kind, graph, hardware, budget_bytes)
        solution = solver.solve(problem, limits or Limits(), watch)
        _require_feasible(solution, budget_bytes)
        schedule = None if solution.plan is None else lower_plan(problem, solution.plan)
        _require_clean(problem, solution, schedule)
        return msgspec.structs.replace(solution, plan=schedule)

    return plan


def _require_feasible(solution: Solution[Any], budget_bytes: int) -> None:
    """Refuse a budget that the solver proved too small."""
    if solution.status is not Status.INFEASIBLE:
        return
    least = solution.least_budget_bytes
    at_least = "more" if least is None else f"at least {least} bytes"
    raise InfeasibleBudget(solution.reason or f"no plan keeps {budget_bytes} bytes: give {at_least}", least)


def _require_clean(problem: Problem, solution: Solution[Any], schedule: Schedule | None) -> None:
    """Have the independent judge look at the plan and its schedule; a fault of ours must never be executed."""
    from solvers.check import check_plan, check_schedule

    if schedule is None:
        return
    found = check_plan(problem, plan_file(solution, problem.KIND, None)).violations
    found += check_schedule(problem, schedule).violations
    if found:
        raise BayplanError(
            f"{solution.solver} answered with a faulty plan ({found[0]}): report this and choose another solver"
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
    return {field.name: field for field in dataclasses.fields(_found(solver_entry(name).target)) if field.init}


def build_solver(name: str, parameters: Mapping[str, object]) -> AnySolver:
    """The solver of that name with these fields; raises `InvalidInput` on an unknown field."""
    known = solver_parameters(name)
    for key in parameters:
        if key not in known:
            raise unknown(f"parameter of {name}", key, known)
    solver: AnySolver = _found(SOLVERS[name].target)(**parameters)
    return solver


def read_parameter(name: str, key: str, text: str) -> object:
    """A field of a solver from its text on a command line; raises `InvalidInput` where it has another type."""
    known = solver_parameters(name)
    if key not in known:
        raise unknown(f"parameter of {name}", key, known)
    expected = typing.get_type_hints(_found(SOLVERS[name].target))[key]
    return _read(expected, text, f"{key} of {name}")


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


def make_problem(kind: str, graph: OpGraph, hardware: Hardware, budget_bytes: int | None) -> Problem:
    """The problem of that kind; without a budget, the device's memory. Raises `InvalidInput` where none can be made."""
    problem: Problem = _found(_room(kind, MADE).make)(graph, hardware, budget_bytes)
    return problem


def lower_plan(problem: Problem, plan: Plan) -> Schedule:
    """The schedule that carries a plan out; raises `InvalidInput` where the kind has none or the plan is invalid."""
    lower = _room(problem.KIND, LOWERED).lower
    if lower is None:
        raise _impossible(problem.KIND, LOWERED, [kind for kind, room in ROOMS.items() if room.lower])
    schedule: Schedule = _found(lower)(problem, plan)
    return schedule


def require_room(kind: str) -> None:
    """Refuse a kind whose problems cannot be made from a graph (`InvalidInput`)."""
    _room(kind, MADE)


def _room(kind: str, what: str) -> Room:
    if kind not in PROBLEMS:
        raise unknown("kind", kind, PROBLEMS)
    if kind not in ROOMS:
        raise _impossible(kind, what, ROOMS)
    return ROOMS[kind]


def _impossible(kind: str, what: str, possible: Iterable[str]) -> InvalidInput:
    return InvalidInput(f"{kind} problems cannot be {what}: this works for {', '.join(sorted(possible))}")


def _found(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _read(expected: Any, text: str, place: str) -> object:
    options = typing.get_args(expected)
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        if type(None) in options and text.lower() == "none":
            return None
        options = tuple(option for option in options if option in _READERS)
        expected = options[0] if len(options) == 1 else expected
    if typing.get_origin(expected) is typing.Literal:
        if text not in options:
            raise unknown(f"choice for {place}", text, map(str, options))
        return text
    if expected not in _READERS:
        raise InvalidInput(f"{place} cannot be set on the command line: set it from Python")
    meaning, reader = _READERS[expected]
    try:
        return reader(text)
    except (ValueError, KeyError, OverflowError) as error:
        raise InvalidInput(f"{place} is {text!r}: give {meaning}") from error


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_READERS: dict[Any, tuple[str, Callable[[str], object]]] = {
    bool: ("true or false", lambda text: _TRUTH[text.lower()]),
    int: ("a whole number", _whole),
    float: ("a finite number", _finite),
    str: ("a text", str),
}
