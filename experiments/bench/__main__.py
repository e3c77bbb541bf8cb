"""The command behind `make bench`: chosen sections, one table, one file."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from experiments.bench.figure import Figure, row
from experiments.command_line import run
from experiments.commands.outputs import writable
from experiments.commands.show import print_table
from experiments.machine import machine
from solvers.ir.codec import write_json

INSTANCE = Path(__file__).resolve().parents[1] / "instances" / "swap-llama2-32l.json"
SECTIONS = (
    "swap",
    "layer",
    "graph",
    "records",
    "matching",
    "tracing",
    "offload",
    "replan",
    "deep",
    "layout",
    "prediction",
    "tape",
)
FILE = click.Path(path_type=Path)


@click.command("bench")
@click.option("--only", type=click.Choice(SECTIONS), multiple=True, help="Only this section; repeatable.")
@click.option("--instance", type=FILE, default=INSTANCE, help="A swap problem for the section swap.")
@click.option("--graph", type=FILE, multiple=True, help="A recompute-graph problem for the section graph; repeatable.")
@click.option("--time-limit", type=click.FloatRange(min=0.01, max=3600), default=10.0, help="Seconds for milp-swap.")
@click.option("--graph-time-limit", type=click.FloatRange(min=0.01, max=3600), default=30.0, help="Seconds for opt.")
@click.option("--threads", type=click.IntRange(1, 1024), default=1, help="Threads of milp-swap's engine.")
@click.option("--graph-threads", type=click.IntRange(1, 1024), default=2, help="Threads of opt.")
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=5,
    help="Runs of each figure of the sections layer, replan and layout.",
)
@click.option(
    "--rounds",
    type=click.IntRange(2, 100_000),
    default=60,
    help="Rounds of the sections records, matching, tracing, tape.",
)
@click.option("--seeds", type=click.IntRange(0), nargs=2, help="The first and the last cluster of the section deep.")
@click.option("--json", "out", type=FILE, help="Write the figures to this file, too.")
def bench(
    only: tuple[str, ...],
    instance: Path,
    graph: tuple[Path, ...],
    seeds: tuple[int, int] | None,
    out: Path | None,
    **settings: float,
) -> int:
    """Measure solvers and hooks; ratios are of figures of this same run, or to a goal where one is named."""
    place = None if out is None else writable(out, "--json", inputs=(instance, *graph))
    figures = [figure for section in only or SECTIONS for figure in _section(section, instance, graph, seeds, settings)]
    if place is not None:
        write_json(place, {"machine": machine(), "figures": [asdict(figure) for figure in figures]})
    title = ", ".join(f"{name} {value}" for name, value in machine().items())
    print_table(f"bench on {title}", ("figure", "value", "ratio", "how obtained"), [row(figure) for figure in figures])
    return 0


def _section(
    section: str, instance: Path, graph: tuple[Path, ...], seeds: tuple[int, int] | None, settings: dict[str, float]
) -> list[Figure]:
    """Each section imports only what it measures."""
    if section == "swap":
        from experiments.bench.swap import swap_figures

        return swap_figures(instance, settings["time_limit"], int(settings["threads"]))
    if section == "layer":
        from experiments.bench.layer import layer_figures

        return layer_figures(int(settings["runs"]))
    if section == "graph":
        from experiments.bench.graph import graph_figures, shipped_instances

        limit_s, threads = settings["graph_time_limit"], int(settings["graph_threads"])
        return graph_figures(list(graph) or shipped_instances(), limit_s, threads)
    if section == "matching":
        from experiments.bench.matching import matching_figures

        return matching_figures(int(settings["rounds"]))
    if section == "tracing":
        from experiments.bench.tracing import tracing_figures

        return tracing_figures(int(settings["rounds"]))
    if section == "replan":
        from experiments.bench.replan import replan_figures

        return replan_figures(int(settings["runs"]))
    if section == "deep":
        from experiments.bench.deep import deep_figures

        return deep_figures() if seeds is None else deep_figures(range(seeds[0], seeds[1] + 1))
    if section == "layout":
        from experiments.bench.layout import layout_figures

        return layout_figures(int(settings["runs"]))
    if section == "prediction":
        from experiments.bench.prediction import prediction_figures

        return prediction_figures()
    if section == "tape":
        from experiments.bench.tape import tape_figures

        return tape_figures(int(settings["rounds"]))
    if section == "offload":
        from experiments.bench.offload import offload_figures

        return offload_figures()
    from experiments.bench.records import record_figures

    return record_figures(int(settings["rounds"]))


def main() -> int:
    """Run the benchmark; the result is the exit code."""
    return run(bench, "bench", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
