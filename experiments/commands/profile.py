"""`bayplan profile`: one real training step of the user's model as a graph file."""

import contextlib
import sys
from pathlib import Path

import click

from experiments.commands.devices import DEVICE_HELP, SIM_HARDWARE, ready, require_device
from experiments.commands.show import print_figures, show_us
from experiments.commands.streams import destination, is_stream, write_at
from experiments.printable import printable
from experiments.profiled import doubts, require_operators, sizes_doubts, temporaries_doubts
from solvers.ir.amounts import show_bytes
from solvers.ir.codec import document_to_raw
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph

HELP = """Profile one training step of MODULE:FACTORY, a function of yours.

FACTORY takes a device and returns (model, optimizer, step); step() trains for one step and returns the loss. MODULE is
looked up in the working directory and on Python's path. The step runs a few times before it is profiled.

--out - prints the graph and nothing else; what FACTORY itself prints goes to stderr then."""


@click.command("profile", help=HELP)
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--device", metavar="D", help=DEVICE_HELP)
@click.option(
    "--hardware", metavar="H", help=f"What device sim models: a file or a name in conf/hardware ({SIM_HARDWARE})."
)
@click.option("--shapes-only", is_flag=True, help="Device sim without bytes, its memory without end: any size.")
@click.option("--out", type=click.Path(path_type=Path), metavar="G.json", help="Where to write the graph.")
def command(factory: str, device: str | None, hardware: str | None, shapes_only: bool, out: Path | None) -> int:
    """See HELP."""
    require_device(device, hardware, shapes_only=shapes_only)
    place = None if out is None else destination(out, "--out")
    with contextlib.redirect_stdout(sys.stderr) if is_stream(out) else contextlib.nullcontext():
        graph, target = _profiled(factory, device, hardware, shapes_only)
    require_operators(graph, f"the step of {factory}", target)
    if place is not None:
        write_at(place, document_to_raw(graph))
    if not is_stream(out):
        _print(graph, target, out)
    for doubt in (*doubts(graph), *sizes_doubts(graph), *temporaries_doubts(graph)):
        click.echo(f"bayplan: warning: {printable(doubt)}", err=True)
    return 0


def _profiled(factory: str, device: str | None, hardware: str | None, shapes_only: bool) -> tuple[OpGraph, str]:
    """The graph of one step, and the device's name."""
    from torch import OutOfMemoryError

    from runtime.profile import call_theirs, load_factory, profile_step

    build = load_factory(factory)
    target = ready(device, hardware, shapes_only=shapes_only)
    try:
        model, optimizer, step = call_theirs(lambda: build(target), factory)
        graph = profile_step(
            lambda: call_theirs(step, f"the step of {factory}"), target, name=factory, model=model, optimizer=optimizer
        )
    except OutOfMemoryError as error:
        reason = str(error).strip().split("\n")[0]
        raise InvalidInput(f"{factory} does not fit the whole device ({reason}): make it smaller") from error
    return graph, str(target)


def _print(graph: OpGraph, device: str, out: Path | None) -> None:
    figures: list[tuple[str, str | None]] = [
        ("device", device),
        ("operators", str(len(graph.ops))),
        (
            "tensors",
            f"{len(graph.tensors)}, of them saved for backward {sum(tensor.saved for tensor in graph.tensors)}",
        ),
        ("time", show_us(sum(op.time_us for op in graph.ops))),
        ("peak", show_bytes(max(graph.memory_bytes))),
        ("source", graph.source),
        ("written to", "nowhere: give --out G.json to keep it" if out is None else str(out)),
    ]
    print_figures(graph.name, figures)
