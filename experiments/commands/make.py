"""`bayplan make`: a problem file from a graph, a machine and a budget."""

from pathlib import Path

import click

from experiments.commands.amounts import BYTES_HELP, parse_budget, show_bytes
from experiments.commands.outputs import writable
from experiments.commands.show import print_figures
from experiments.hardware import read_hardware
from solvers.ir.codec import problem_to_raw, read_document, write_json
from solvers.ir.graph import OpGraph
from solvers.planner import make_problem, require_room

HELP = f"""Make a problem of KIND from a graph.

A budget is {BYTES_HELP}, or a percentage of the graph's peak, as in 55%."""


@click.command("make", help=HELP)
@click.argument("kind")
@click.option("--graph", required=True, type=click.Path(path_type=Path), metavar="G.json", help="The step's graph.")
@click.option("--hardware", required=True, metavar="H", help="A hardware file, or a name in conf/hardware.")
@click.option("--budget", metavar="B", help="Bytes, 8GiB, or 55%; the device's memory unless given.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="P.json", help="Where to write it.")
def command(kind: str, graph: Path, hardware: str, budget: str | None, out: Path) -> int:
    """See HELP."""
    require_room(kind)
    step = read_document(graph, OpGraph)
    machine = read_hardware(hardware)
    peak = max(step.memory_bytes)
    amount = machine.device().memory_bytes if budget is None else parse_budget(budget, peak)
    place = writable(out, "--out", inputs=(graph, Path(hardware)))
    problem = make_problem(kind, step, machine, amount)
    write_json(place, problem_to_raw(problem))
    figures: list[tuple[str, str | None]] = [
        ("kind", kind),
        ("hardware", machine.name),
        ("budget", show_bytes(amount)),
        ("peak of the graph", show_bytes(peak)),
        ("written to", str(out)),
    ]
    print_figures(problem.name, figures)
    return 0
