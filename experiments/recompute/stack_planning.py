"""Plans for a stack of layers: by solvers from its measured layer, and the same policies simulated by formulas."""

from dataclasses import dataclass, replace
from typing import Any

from experiments.recompute.prediction import Prediction, predict
from experiments.recompute.settings import parse_policy
from experiments.recompute.stack_program import Stack
from experiments.recompute.step_log import StepLog
from runtime.recompute.layer import Layer, policy_of
from runtime.recompute.policy import BlockPolicy
from solvers.ir import Limits
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.ir.solution import Solution
from solvers.partition.pipeline import Pipeline
from solvers.partition.stages import choice_of, in_order, layer_problem_of
from solvers.planner import build_solver, solve
from solvers.recompute.layer.answers import plan_bytes

HALVINGS = 8
"""Of the room that a solver is told: to a 256th of what could be stored."""


DEAR = 10
"""So many times all of a layer's operators: more than any plan saves."""
BY_OPERATOR = ("checkmate-layer", "adapipe", "heu")
"""Solvers that decide operator by operator; the others run layers, or attention, again as a whole."""


@dataclass(frozen=True)
class Planned:
    """The policy of each layer, what the solver said of it, and what a walk through the measured step predicts.

    `objective_us` is a layer's and pass's, of the layer problem.
    """

    policies: tuple[BlockPolicy, ...]
    objective_us: float
    predicted: Prediction


def middle(log: StepLog) -> Layer:
    """The layer that stands for all."""
    return log.layers[len(log.layers) // 2]


def with_sums_decided(layer: Layer) -> Layer:
    """The layer, with what its all-reduces leave among what a plan decides.

    The tape stores that while what reads it may run again, and never runs it again: it is so dear here that a solver
    stores it wherever it runs again what reads it, or stores that instead.
    """
    dear = DEAR * sum(unit.time_us for unit in layer.units)
    units = (
        replace(unit, fixed=None, time_us=dear) if unit.communicates and not unit.saved else unit
        for unit in layer.units
    )
    return replace(layer, units=tuple(units))


def solved(spec: str, problem: RecomputeLayerProblem) -> Solution[Any]:
    """The answer of a solver of kind `recompute-layer`, given by name and parameters."""
    name, parameters = parse_policy(spec)
    found: Solution[Any] = solve(build_solver(name, parameters), problem, Limits()).solution
    return found


def plan_stack(spec: str, log: StepLog, stack: Stack, budget_bytes: int) -> Planned | None:
    """The plan that costs least among those whose predicted peak fits; None: there is none.

    The layer problem knows one static part and counts what runs again of a layer as there at once. So the solver is
    told more or less room, by halves, and a walk through the measured step judges its plans.
    """
    layer, count = middle(log), len(log.layers)
    if parse_policy(spec)[0] in BY_OPERATOR:
        layer = with_sums_decided(layer)
    one = layer.input_bytes + sum(unit.bytes for unit in layer.units)
    low, high = 0, stack.inflight * (count + 1) * one

    def asked(room_bytes: int) -> Planned | None:
        problem = layer.problem(
            layers=count,
            inflight=stack.inflight,
            last_stage=stack.inflight == 1,
            budget_bytes=max(budget_bytes, room_bytes),
            static_bytes=max(0, budget_bytes - room_bytes),
        )
        return _planned(solved(spec, problem), layer, log)

    best = asked(high)
    if best is not None and best.predicted.peak_bytes <= budget_bytes:
        return best
    best = None
    for _ in range(HALVINGS):
        room = (low + high) // 2
        found = asked(room)
        fits = found is not None and found.predicted.peak_bytes <= budget_bytes
        if found is not None and fits and (best is None or found.predicted.exposed_us < best.predicted.exposed_us):
            best = found
        low, high = (room, high) if fits or found is None else (low, room)
    return best


def _planned(solution: Solution[Any], layer: Layer, log: StepLog) -> Planned | None:
    if solution.plan is None or solution.objective is None:
        return None
    policies = tuple(policy_of(layer, group) for group in solution.plan.groups for _ in range(group.layers))
    return Planned(policies, solution.objective / len(policies), predict(log, policies))


@dataclass(frozen=True)
class Simulated:
    """A stage by the formulas and links of `solvers/workload`, of one step: what `experiments/lynx` computes."""

    exposed_us: int
    hidden_us: int
    lane_us: int
    peak_bytes: int


def simulated(spec: str, stack: Stack, budget_bytes: int) -> Simulated | None:
    """The same policy on the stage's formulas; None where nothing fits.

    What is exposed: in each pass on the critical path, and in the last ones, before which no forward pass comes, what
    forward windows would hide (`StageChoice.lane_us`, `cool_us`).
    """
    pipeline = Pipeline(stack.shape, stack.cut, stack.machine, budget_bytes).problem
    asked = layer_problem_of(pipeline, stack.stage, stack.rank.layers)
    plan = solved(spec, asked).plan
    if plan is None:
        return None
    one, passes = choice_of(pipeline, stack.stage, asked, in_order(plan.groups)), stack.cut.microbatches
    exposed = passes * one.lane_us + (stack.inflight - 1) * one.cool_us
    again = passes * (one.critical_us + one.forward_hidden_us + one.backward_hidden_us)
    return Simulated(
        exposed_us=exposed,
        hidden_us=again - exposed,
        lane_us=passes * (one.forward_us + one.backward_us) + exposed,
        peak_bytes=plan_bytes(asked, plan.groups),
    )
