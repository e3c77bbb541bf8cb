"""`bayplan make`: a problem file from a measured graph or a model's shape, a machine and a budget."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from experiments.commands.completion import names_or_files
from experiments.commands.cut import CommandT, hardware_option, shape_options
from experiments.commands.kinds import GRAPH, face_of, faces
from experiments.commands.kinds.face import Face, Made, Request, budget_bytes
from experiments.commands.kinds.stage import stage_of
from experiments.commands.show import print_figures
from experiments.commands.streams import destination, is_stream, read_graph_at, write_at
from experiments.hardware import read_hardware
from experiments.printable import printable
from solvers.ir.amounts import BYTES_HELP, show_bytes
from solvers.ir.codec import document_from_raw, problem_from_raw
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.names import unknown
from solvers.kinds import KINDS
from solvers.planner import make_problem, require_makeable

HELP = f"""Make a problem of KIND from a graph, or from one stage of a model given by its shape.

A measured graph: --graph. A computed one: --shape with --microbatch, and how the model is cut. recompute-layer looks at
one layer, with all microbatches that the stage holds under 1F1B; all other kinds see one microbatch's forward and
backward pass through the stage's layers. KIND graph writes that graph itself. KIND partition asks how many layers each
stage should have, where Lynx-HEU decides what a stage recomputes; KIND pipeline about the whole step. KIND replan is
about --data-parallel pipelines of --pipeline nodes each (of --tensor devices), with --microbatches in a step of them
all, perhaps after a failure. KIND layout is of one of --data-parallel ranks that each run the whole model on
--microbatch samples.

A budget is {BYTES_HELP}, or a percentage, as in 55%, of the peak without any plan (layout: with everything on the
device). --graph - reads stdin; --out - prints the problem and nothing else."""


def own_options(command: CommandT) -> CommandT:
    """Give a command the options that kinds have of their own."""
    for option in reversed([option for face in faces().values() for option in face.options]):
        command = option(command)  # type: ignore[assignment]
    return command


class OneKind(click.Command):
    """`make KIND --help` lists what that kind takes, and nothing of the others."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click, with the kind known before `--help` is answered."""
        ctx.meta[OneKind.__name__] = next((word for word in args if word in (*KINDS, GRAPH)), None)
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and args[0] not in (*KINDS, GRAPH):
            raise unknown("kind", args[0], (*KINDS, GRAPH))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click, without the options that mean nothing to the kind."""
        kind = ctx.meta.get(OneKind.__name__)
        hidden = {} if kind is None else meaningless_to(kind)
        rows = [
            record
            for param in self.get_params(ctx)
            if param.name not in hidden and (record := param.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options" if kind is None else f"Options of {kind}"):
            formatter.write_dl(rows)
        if kind is None:
            formatter.write_paragraph()
            formatter.write_text("`bayplan make KIND --help` lists that kind's options only.")


@click.command("make", cls=OneKind, help=HELP)
@click.argument("kind", shell_complete=names_or_files(lambda: [*KINDS, GRAPH]))
@click.option("--graph", type=click.Path(path_type=Path), metavar="G.json", help="The step's graph.")
@shape_options
@click.option("--stall-us", type=click.IntRange(0), help="Idle time a layer in the cool-down.  [default: 0]")
@own_options
@hardware_option
@click.option("--budget", metavar="B", help="Bytes, 8GiB, or 55%; the device's memory unless given.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="P.json", help="Where to write it.")
def command(
    kind: str, graph: Path | None, shape: str | None, hardware: str, budget: str | None, out: Path, **cut: Any
) -> int:
    """See HELP."""
    face = face_of(kind)
    if face.from_graph is None and (face.from_shape is None or shape is None):
        require_makeable(kind)
    for option, why in meaningless_to(kind).items():
        _refuse(cut, [option], why)
    if [graph, shape, cut["profile"]].count(None) != 2:
        raise InvalidInput(
            f"give either --graph G.json or --shape NAME{_or_profile(face)}: one of them tells what is to be planned"
        )
    request = Request(kind, hardware, read_hardware(hardware), budget, cut)
    made = _made(face, request, graph, shape)
    _readable(made.raw)
    inputs = tuple(Path(name) for name in (graph, shape, hardware) if name is not None)
    write_at(destination(out, "--out", inputs), made.raw)
    figures = [("kind", kind), ("hardware", request.machine.name), *made.figures, ("written to", str(out))]
    if not is_stream(out):
        print_figures(made.name, figures)
    for warning in made.warnings:
        click.echo(f"bayplan: warning: {printable(warning)}", err=True)
    return 0


def _or_profile(face: Face) -> str:
    """The third way of a kind that can profile a step itself."""
    return "" if face.from_profile is None else ", or of a layout --profile MODULE:FACTORY"


def meaningless_to(kind: str) -> dict[str, str]:
    """The options that a kind does not take, and why."""
    face, known = face_of(kind), faces()
    found = dict.fromkeys(face.meaningless, face.why)
    for option in dict.fromkeys(name for other in known.values() for name in other.own):
        owners = [name for name, other in known.items() if option in other.own]
        if kind not in owners:
            found.setdefault(option, f"means something to {' and '.join(owners)} problems only")
    return found


def _refuse(cut: Mapping[str, Any], options: Iterable[str], why: str) -> None:
    for option in options:
        if cut[option] is not None:
            raise InvalidInput(f"--{option.replace('_', '-')} {why}: leave it out")


def _made(face: Face, request: Request, graph: Path | None, shape: str | None) -> Made:
    """By the kind's own way where it has one."""
    if face.from_profile is not None and request.cut["profile"] is not None:
        _refuse_cut(request, face.own, "--profile")
        return face.from_profile(request)
    if graph is not None:
        _refuse_cut(request, (*face.own, *face.of_graph), "--graph")
        return (face.from_graph or _from_graph)(request, graph)
    return (face.from_shape or _from_shape)(request, str(shape))


def _refuse_cut(request: Request, allowed: Iterable[str], measured: str) -> None:
    """Refuse what says how a model is cut where a step was measured."""
    known = set(allowed)
    others = [name for name in request.cut if name not in known]
    _refuse(request.cut, others, f"says how a --shape is cut, but {measured} is a measured step")


def _readable(raw: dict[str, Any]) -> None:
    """Refuse what no command would read again: sizes and times beyond 2⁵³."""
    if "kind" in raw:
        problem_from_raw(raw, "the problem")
    else:
        document_from_raw(raw, OpGraph, "the graph")


def _from_graph(request: Request, graph: Path) -> Made:
    """The problem of a measured step; a percentage is of its peak."""
    step = read_graph_at(graph)
    peak = max(step.memory_bytes)
    amount = budget_bytes(request.budget, peak, request.machine)
    face = face_of(request.kind)
    problem = face.refined(request, make_problem(request.kind, step, request.machine, amount))
    warnings = face.warnings(problem, step, request.budget, peak)
    return Made.of(problem, [("budget", show_bytes(amount)), ("peak of the graph", show_bytes(peak))], tuple(warnings))


def _from_shape(request: Request, shape: str) -> Made:
    """The problem of one stage of a model, with one microbatch; a percentage is of the stage's peak."""
    graph = stage_of(request, shape).graph
    peak = max(graph.memory_bytes)
    amount = budget_bytes(request.budget, peak, request.machine)
    problem = make_problem(request.kind, graph, request.machine, amount)
    problem = face_of(request.kind).refined(request, problem)
    return Made.of(problem, [("budget", show_bytes(amount)), ("peak of the graph", show_bytes(peak))])
