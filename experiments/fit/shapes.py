"""`bayplan fit --shape`: a stage of a model on paper, by formulas and a roofline, judged against the budget."""

from collections.abc import Sequence
from functools import partial

from experiments.commands.interrupts import until_asked
from experiments.fit.again import run_again
from experiments.fit.answer import Row, Technique
from experiments.fit.joint import joint_row
from experiments.fit.judge import Asked, Budget, Told, row_of
from experiments.fit.swapping import swap_row
from experiments.fit.trace import Trace, graph_trace
from experiments.stages import Stage
from solvers.ir.fields import LARGEST
from solvers.ir.graph import OpGraph
from solvers.ir.recompute import RecomputeLayerPlan
from solvers.ir.solution import Limits
from solvers.planner import build_solver
from solvers.recompute.layer.make import layer_problem

HOW = "simulated: the stage computed from the model's shape by formulas and a roofline"
CLOCK = "simulated: the sum of the roofline's times, one microbatch forward and backward"
WHAT: dict[Technique, str] = {
    "plain": "everything is kept",
    "full": "each layer keeps its input only and runs again before its backward pass",
    "selective": "each layer's attention core runs again before its backward pass (Korthikanti et al. 2022)",
    "planned": "each layer keeps and runs again what heu decides for this budget, by operator",
    "session": "a program within runtime.swap.session(budget)",
}


def shape_trace(stage: Stage) -> Trace:
    """The plain step of a stage: one microbatch, beside those that it holds in flight."""
    return _trace(stage, stage.graph, stage.costs.kept_bytes)


def shape_rows(stage: Stage, asked: Asked, budget: Budget) -> tuple[Row, ...]:
    """A row for each technique, until Ctrl-C."""
    return until_asked(partial(_row, stage, technique, asked, budget) for technique in asked.techniques)


def _row(stage: Stage, technique: Technique, asked: Asked, budget: Budget) -> Row:
    if technique == "swap":
        return swap_row(shape_trace(stage), asked.hardware, budget, HOW, asked.solver, asked.limits)
    if technique == "joint":
        return joint_row(shape_trace(stage), asked.hardware, budget, HOW, asked.solver, asked.limits)
    trace = technique_trace(stage, technique, budget.bytes)
    if isinstance(trace, str):
        return Row(technique=technique, what=WHAT[technique], how=HOW, reason=f"cannot be told: {trace}")
    return row_of(trace, budget, Told(technique, WHAT[technique], HOW, CLOCK))


def technique_trace(stage: Stage, technique: Technique, budget_bytes: int = LARGEST) -> Trace | str:
    """The step of a stage, plain or recomputing; a sentence where the rule does not apply. Plans are for the budget."""
    if technique == "plain":
        return shape_trace(stage)
    if technique == "session":
        return "a session is judged by training in one, and nothing runs here: give MODULE:FACTORY"
    plan = _rule(stage, "heu", budget_bytes) if technique == "planned" else _rule(stage, technique, LARGEST)
    if isinstance(plan, str):
        return plan
    plain, (group, *_) = stage.graph, plan.groups
    graph = run_again(plain, _everywhere(plain, [op for op, _ in group.recomputed]))
    kept = stage.costs.input_bytes + sum(stage.costs.forward[op].output_bytes for op in group.stored)
    return _trace(stage, graph, kept)


def _trace(stage: Stage, graph: OpGraph, kept_bytes: int) -> Trace:
    """The graph's requests; another microbatch in flight holds `kept_bytes` a layer, and embedding's and head's."""
    each = stage.layers * kept_bytes + sum(one.activation_bytes for one in stage.extras)
    return graph_trace(graph, (stage.inflight - 1) * each)


def _rule(stage: Stage, solver: str, budget_bytes: int) -> RecomputeLayerPlan | str:
    """What Megatron-LM's rule of that name, or a solver, recomputes in every layer; a sentence where there is none."""
    problem = layer_problem(
        stage.costs,
        layers=stage.layers,
        inflight_microbatches=stage.inflight,
        last_stage=stage.is_last,
        budget_bytes=budget_bytes,
        static_bytes=stage.fixed_bytes,
        stall_us=0,
    )
    solution = build_solver(solver, {}).solve(problem, Limits())
    return solution.plan if isinstance(solution.plan, RecomputeLayerPlan) else solution.reason or "there is no plan"


def _everywhere(graph: OpGraph, ops: Sequence[int]) -> list[int]:
    """These operators of a layer in every layer, as numbers in the graph."""
    first: dict[int, int] = {}
    for number, (layer, op) in enumerate(zip(graph.layer_of_op or (), graph.ops, strict=True)):
        if layer is not None and op.phase == "forward":
            first.setdefault(layer, number)
    return [begin + op for begin in first.values() for op in ops]
