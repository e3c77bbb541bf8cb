"""`bayplan make pipeline`: a whole training step, from a model's shape or a measured step."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import click

from experiments.commands.kinds.face import Face, Made, Request, Shown, budget_bytes
from experiments.commands.kinds.stage import stage_of
from experiments.commands.show import Figures, show_share, show_us
from experiments.commands.streams import read_graph_at
from experiments.replanning import link_bytes_per_s
from solvers.ir.amounts import parse_bytes, show_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown
from solvers.ir.pipeline import PassOrder, PipelinePlan, PipelineProblem


def _order(request: Request) -> PassOrder:
    """1F1B unless asked otherwise."""
    given = request.cut["order"] or "1f1b"
    if given not in get_args(PassOrder):
        raise unknown("choice for --order", given, get_args(PassOrder))
    return "gpipe" if given == "gpipe" else "1f1b"


def _from_shape(request: Request, shape: str) -> Made:
    """A named model; a percentage is of the even partition's fullest stage where nothing is recomputed."""
    from solvers.partition.pipeline import Pipeline

    stage, order = stage_of(request, shape), _order(request)
    cut = stage.parallelism
    peak = max(replace(stage, index=index).unlimited_bytes for index in range(cut.pipeline))
    amount = budget_bytes(request.budget, peak, stage.cluster)
    problem = Pipeline(stage.shape, cut, stage.cluster, amount).problem_in(order)
    return Made.of(
        problem,
        [("budget of a stage", show_bytes(amount)), ("fullest stage where nothing is recomputed", show_bytes(peak))],
    )


def _from_graph(request: Request, graph: Path) -> Made:
    """A measured step of one microbatch; a percentage is of its peak."""
    from solvers.partition.make import make_pipeline_problem

    step, order, stages = read_graph_at(graph), _order(request), request.cut["pipeline"] or 1
    peak = max(step.memory_bytes)
    amount = budget_bytes(request.budget, peak, request.machine)
    problem = make_pipeline_problem(
        step,
        request.machine,
        amount,
        stages=stages,
        microbatches=request.cut["microbatches"] or stages,
        bytes_per_s=_rate(request) if stages > 1 else None,
        order=order,
    )
    return Made.of(problem, [("budget of a stage", show_bytes(amount)), ("peak of the graph", show_bytes(peak))])


def _rate(request: Request) -> int:
    """Bytes a second between two stages: --link, or the hardware's slowest link between devices."""
    link = request.cut["link"]
    rate = link_bytes_per_s(request.machine) if link is None else parse_bytes(link, "--link")
    if rate < 1:
        raise InvalidInput(f"--link is {link!r}: give at least one byte a second, as in --link 25GB")
    return rate


def _simulate(problem: PipelineProblem, plan: PipelinePlan) -> Shown:
    """One step of all stages."""
    from solvers.planner import simulate_plan

    report, schedule = simulate_plan(problem, plan)
    layers = ", ".join(map(str, plan.layers))
    figures: Figures = [
        ("plan", f"layers {layers}; hidden in stalls: {plan.hide_in_stalls}"),
        ("makespan", show_us(report.makespan_us)),
        ("the same stages without recomputation", show_us(report.base_us)),
        ("peak", f"{show_bytes(report.peak_bytes)} at {show_us(report.peak_at_us)}, on the fullest stage"),
        ("its budget", show_bytes(report.budget_bytes)),
    ]
    for cause, time in report.stall_us.items():
        share = show_share(time / report.makespan_us if report.makespan_us else None)
        figures.append((cause, f"{show_us(time)}, {share} of the step"))
    return Shown(report, schedule, figures)


FACE = Face(
    options=(click.option("--order", metavar="ORDER", help="pipeline: 1f1b or gpipe.  [default: 1f1b]"),),
    own=("order", "link"),
    meaningless=("stage", "layers", "stall_us", "ungrouped"),
    why="means nothing to a pipeline, which is of all stages",
    of_graph=("pipeline", "microbatches"),
    from_graph=_from_graph,
    from_shape=_from_shape,
    simulate=_simulate,
)
