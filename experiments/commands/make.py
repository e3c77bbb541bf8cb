"""`bayplan make`: a problem file from a measured graph or a model's shape, a machine and a budget."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from experiments.commands import make_layout, make_replan
from experiments.commands.make_layout import (
    MadeLayout,
    layout_of_graph,
    layout_of_profile,
    layout_of_shape,
    layout_options,
)
from experiments.commands.make_replan import problem_of_graph, problem_of_shape, replan_options
from experiments.commands.outputs import writable
from experiments.commands.show import print_figures
from experiments.hardware import read_hardware
from experiments.printable import printable
from experiments.profiled import doubts
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir.amounts import BYTES_HELP, parse_budget, show_bytes
from solvers.ir.codec import (
    Problem,
    document_from_raw,
    document_to_raw,
    problem_from_raw,
    problem_to_raw,
    read_document,
    write_json,
)
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.replan import ReplanProblem
from solvers.ir.swap import SwapProblem
from solvers.planner import make_problem, require_room
from solvers.workload import Parallelism

HELP = f"""Make a problem of KIND from a graph, or from one stage of a model given by its shape.

A measured graph: --graph. A computed one: --shape with --microbatch, and how the model is cut. recompute-layer looks at
one layer, with all microbatches that the stage holds under 1F1B; all other kinds see one microbatch's forward and
backward pass through the stage's layers. KIND graph writes that graph itself. KIND partition asks how many layers each
stage should have, where Lynx-HEU decides what a stage recomputes. KIND replan is about --data-parallel pipelines of
--pipeline nodes each (of --tensor devices), with --microbatches in a step of them all, perhaps after a failure. KIND
layout is of one of --data-parallel ranks that each run the whole model on --microbatch samples.

A budget is {BYTES_HELP}, or a percentage, as in 55%, of the peak without any plan (layout: with everything on the
device)."""

GRAPH, LAYER, PARTITION, REPLAN, LAYOUT = "graph", "recompute-layer", "partition", "replan", "layout"
"""What is not made from a stage's whole graph: the graph itself, the problem of one layer, those of all stages."""
OWN = {REPLAN: make_replan.NAMES, LAYOUT: make_layout.NAMES}
"""Options that mean nothing to other kinds than these."""
MEANINGLESS = {
    REPLAN: (make_replan.OF_OTHERS, "means nothing to replan, which is of all stages"),
    LAYOUT: (make_layout.OF_OTHERS, "means nothing to layout, which is of one rank's whole model"),
    PARTITION: (("stage", "layers", "stall_us", "ungrouped"), "means nothing to a partition, which is of all stages"),
}


class Made(NamedTuple):
    """What is written: its name, its JSON, the peak that a percentage refers to, and what to warn of."""

    name: str
    raw: dict[str, Any]
    figures: list[tuple[str, str | None]]
    warnings: tuple[str, ...] = ()


@click.command("make", help=HELP)
@click.argument("kind")
@click.option("--graph", type=click.Path(path_type=Path), metavar="G.json", help="The step's graph.")
@click.option("--shape", metavar="NAME", help="A shape file, or a name in conf/model/shapes.")
@click.option("--tensor", type=click.IntRange(1), help="Devices that share each layer.  [default: 1]")
@click.option("--pipeline", type=click.IntRange(1), help="Stages.  [default: 1]")
@click.option("--microbatch", type=click.IntRange(1), help="Samples of one pass; needed with --shape.")
@click.option("--microbatches", type=click.IntRange(1), help="Passes of a step.  [default: one a stage]")
@click.option("--stage", type=click.IntRange(0), help="Which stage, from 0.  [default: 0]")
@click.option("--layers", type=click.IntRange(1), help="Its layers.  [default: an even share]")
@click.option("--sequence", type=click.IntRange(1), help="Tokens of a sample.  [default: the shape's]")
@click.option("--sequence-parallel", is_flag=True, default=None, help="Cut norms and dropouts along the sequence.")
@click.option("--ungrouped", is_flag=True, default=None, help="Leave small operators apart.")
@click.option("--stall-us", type=click.IntRange(0), help="Idle time a layer in the cool-down.  [default: 0]")
@replan_options
@layout_options
@click.option("--hardware", required=True, metavar="H", help="A hardware file, or a name in conf/hardware.")
@click.option("--budget", metavar="B", help="Bytes, 8GiB, or 55%; the device's memory unless given.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="P.json", help="Where to write it.")
def command(
    kind: str, graph: Path | None, shape: str | None, hardware: str, budget: str | None, out: Path, **cut: Any
) -> int:
    """See HELP."""
    if kind not in {GRAPH, REPLAN, LAYOUT} and not (kind in {LAYER, PARTITION} and shape is not None):
        require_room(kind)
    _refuse_others(kind, cut)
    if [graph, shape, cut["profile"]].count(None) != 2:
        also = ", or of a layout --profile MODULE:FACTORY" if kind == LAYOUT else ""
        raise InvalidInput(f"give either --graph G.json or --shape NAME{also}: one of them tells what is to be planned")
    machine = read_hardware(hardware)
    if cut["profile"] is not None:
        others = [name for name in cut if name not in OWN[LAYOUT]]
        _refuse(cut, others, "says how a --shape is cut, but --profile is a measured step")
        made = _layout(layout_of_profile(hardware, machine, budget, cut))
    elif graph is not None:
        made = _from_graph(kind, graph, machine, budget, cut)
    elif kind == REPLAN:
        made = _replan(str(shape), machine, budget, cut)
    elif kind == LAYOUT:
        made = _layout(layout_of_shape(str(shape), machine, budget, cut))
    else:
        made = _from_shape(kind, _stage(str(shape), machine, cut), budget, cut)
    _readable(made.raw)
    place = writable(out, "--out", inputs=tuple(Path(name) for name in (graph, shape, hardware) if name is not None))
    write_json(place, made.raw)
    print_figures(made.name, [("kind", kind), ("hardware", machine.name), *made.figures, ("written to", str(out))])
    for warning in made.warnings:
        click.echo(f"bayplan: warning: {printable(warning)}", err=True)
    return 0


def _refuse_others(kind: str, cut: dict[str, Any]) -> None:
    """Refuse options that only other kinds know."""
    options, why = MEANINGLESS.get(kind, ((), ""))
    _refuse(cut, options, why)
    for option in dict.fromkeys(name for names in OWN.values() for name in names):
        known = [owner for owner, names in OWN.items() if option in names]
        if kind not in known:
            _refuse(cut, [option], f"means something to {' and '.join(known)} problems only")


def _readable(raw: dict[str, Any]) -> None:
    """Refuse what no command would read again: sizes and times beyond 2⁵³."""
    if "kind" in raw:
        problem_from_raw(raw, "the problem")
    else:
        document_from_raw(raw, OpGraph, "the graph")


def _from_graph(kind: str, graph: Path, machine: Hardware, budget: str | None, cut: dict[str, Any]) -> Made:
    allowed = {*OWN.get(kind, ()), *({"pipeline", "microbatches"} if kind == REPLAN else ())}
    others = [name for name in cut if name not in allowed]
    _refuse(cut, others, "says how a --shape is cut, but --graph is a measured step")
    if kind == GRAPH:
        raise InvalidInput(f"{graph} is a graph already: give --shape to compute one, or another kind")
    step = read_document(graph, OpGraph)
    if kind == LAYOUT:
        return _layout(layout_of_graph(step, machine, budget, cut))
    peak = max(step.memory_bytes)
    amount = _amount(budget, peak, machine)
    problem = (
        problem_of_graph(step, machine, amount, cut) if kind == REPLAN else make_problem(kind, step, machine, amount)
    )
    made = _problem(problem, amount, ("peak of the graph", show_bytes(peak)))
    return made._replace(warnings=(*made.warnings, *_hopeless(problem, step, budget, peak)))


def _hopeless(problem: Problem, step: OpGraph, budget: str | None, peak: int) -> Iterator[str]:
    """What speaks against planning this step at all, or within this budget."""
    if not isinstance(problem, SwapProblem):
        return
    from solvers.swap.evaluate import least_budget

    yield from doubts(step)
    least = least_budget(problem)
    if problem.budget_bytes < least:
        yield (
            f"no plan fits the budget of {show_bytes(problem.budget_bytes)}: the least feasible one is "
            f"{show_bytes(least)}, {100 * least / peak:.1f}% of the peak"
        )
    elif budget is not None and problem.budget_bytes >= peak:
        yield (
            f"the budget of {show_bytes(problem.budget_bytes)} is not below the peak of {show_bytes(peak)}, so nothing "
            "has to leave: give less"
        )


def _replan(shape: str, machine: Hardware, budget: str | None, cut: dict[str, Any]) -> Made:
    """What a percentage refers to is the fullest node before the failure, so it needs the problem first."""
    from experiments.replanning import fullest_bytes

    amount = machine.device().memory_bytes
    problem = problem_of_shape(shape, machine, amount, cut)
    peak = fullest_bytes(problem, cut["pipeline"] or 1, cut["data_parallel"] or 1)
    if budget is not None:
        amount = _bytes(budget, peak)
        problem = msgspec.structs.replace(problem, memory_bytes=amount)
    beyond = ", more than the budget: it cannot have run" if peak > amount else ""
    return _problem(problem, amount, ("fullest node before the failure", f"{show_bytes(peak)}{beyond}"))


def _layout(made: MadeLayout) -> Made:
    return Made(made.problem.name, problem_to_raw(made.problem), made.figures, made.warnings)


def _refuse(cut: dict[str, Any], options: Iterable[str], why: str) -> None:
    for option in options:
        if cut[option] is not None:
            raise InvalidInput(f"--{option.replace('_', '-')} {why}: leave it out")


def _from_shape(kind: str, stage: Stage, budget: str | None, cut: dict[str, Any]) -> Made:
    if kind == LAYER:
        return _layer(stage, budget, cut["stall_us"] or 0)
    if kind == PARTITION:
        return _partition(stage, budget)
    graph = stage.graph
    peak = max(graph.memory_bytes)
    if kind == GRAPH:
        figures = [("ops", str(len(graph.ops))), ("peak of the graph", show_bytes(peak))]
        return Made(graph.name, document_to_raw(graph), [*figures])
    amount = _amount(budget, peak, stage.cluster)
    problem = make_problem(kind, graph, stage.cluster, amount)
    return _problem(problem, amount, ("peak of the graph", show_bytes(peak)))


def _layer(stage: Stage, budget: str | None, stall_us: int) -> Made:
    from solvers.recompute.layer.make import layer_problem

    peak = stage.unlimited_bytes
    amount = _amount(budget, peak, stage.cluster)
    problem = layer_problem(
        stage.costs,
        layers=stage.layers,
        inflight_microbatches=stage.inflight,
        last_stage=stage.is_last,
        budget_bytes=amount,
        static_bytes=stage.fixed_bytes,
        stall_us=stall_us,
    )
    return _problem(problem, amount, ("memory where nothing is recomputed", show_bytes(peak)))


def _partition(stage: Stage, budget: str | None) -> Made:
    """Costs of all stages with every number of layers; a percentage is of the even partition's fullest stage."""
    from experiments.lynx.policies import look_up
    from experiments.lynx.search import Pipeline
    from experiments.lynx.stages import Stages
    from solvers.partition import partition_problem

    cut = stage.parallelism
    peak = max(replace(stage, index=index).unlimited_bytes for index in range(cut.pipeline))
    amount = _amount(budget, peak, stage.cluster)
    rows = Stages(Pipeline(stage.shape, cut, stage.cluster, amount), look_up).rows()
    costs = [[None if choice is None else choice.cost_us for choice in row] for row in rows]
    name = f"{stage.shape.name}, {cut.pipeline} stages, tensor {cut.tensor}, {cut.microbatches} microbatches of "
    problem = partition_problem(f"{name}{cut.microbatch}, costs by heu", costs)
    return _problem(problem, amount, ("fullest stage where nothing is recomputed", show_bytes(peak)))


def _problem(problem: Problem, amount: int, peak: tuple[str, str]) -> Made:
    why = None
    if isinstance(problem, ReplanProblem):
        from experiments.replanning import why_never_ran

        why = why_never_ran(problem)
    figures = [("budget", show_bytes(amount)), peak]
    return Made(problem.name, problem_to_raw(problem), [*figures], () if why is None else (why,))


def _stage(shape: str, machine: Hardware, cut: dict[str, Any]) -> Stage:
    """The stage that the options describe; raises `InvalidInput` where one is missing or means nothing."""
    if cut["microbatch"] is None:
        raise InvalidInput("--shape needs --microbatch, the samples of one pass: give it, as in --microbatch 8")
    stages = cut["pipeline"] or 1
    model = read_shape(shape)
    if cut["sequence"] is not None:
        model = msgspec.structs.replace(model, sequence=cut["sequence"])
    parallelism = Parallelism(
        tensor=cut["tensor"] or 1,
        pipeline=stages,
        sequence_parallel=bool(cut["sequence_parallel"]),
        microbatch=cut["microbatch"],
        microbatches=cut["microbatches"] or stages,
    )
    return Stage(model, parallelism, machine, cut["stage"] or 0, cut["layers"], not cut["ungrouped"])


def _amount(budget: str | None, peak: int, machine: Hardware) -> int:
    return machine.device().memory_bytes if budget is None else _bytes(budget, peak)


def _bytes(budget: str, peak: int) -> int:
    amount = parse_budget(budget, peak)
    if amount < 1:
        raise InvalidInput(f"--budget is {budget!r}, in which nothing runs: give at least 1 byte")
    return amount
