"""`bayplan pareto`: what memory costs, from the least budget to everything kept, and where swapping pays."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from experiments.commands.cut import CUT, hardware_option, shape_options
from experiments.commands.devices import one_thread
from experiments.commands.interrupts import Interrupts, told_interrupted
from experiments.commands.outputs import writable
from experiments.commands.show import print_figures, print_table, show_share
from experiments.commands.streams import print_json
from experiments.hardware import read_hardware
from experiments.printable import printable
from experiments.profiled import doubts, sizes_doubts, temporaries_doubts
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits

if TYPE_CHECKING:
    from experiments.commands.kinds.face import Request
    from experiments.joint.pareto import Pareto, Point
    from solvers.ir.joint import JointProblem

LONGEST_S = 3600.0
LATE = "--time-limit was over before the end: {} of {} budgets were looked at, and not where swapping begins to pay"
SUFFIXES = (".svg", ".png")
HEADERS = ("budget", "of everything kept", "greedy-joint", "joint", "no plan below", "gap")
HELP = """Print the step over the memory budget, keeping, swapping and recomputing together.

The step is MODULE:FACTORY, a function of yours (bayplan profile --help), run on the simulated device, or one stage of a
--shape, computed as in bayplan make. For each budget: the plans of greedy-joint and joint, and a bound that no plan is
below. The steps never grow with the budget, by proof: a plan for a smaller budget holds at a larger one, and the judge
measures it there; a bound for a larger budget holds for a smaller one.

Then: from which rate of the host link on swapping pays beside recomputation alone at --position (0: the least budget,
1: everything kept), and of a --shape from which sequence length on. Exit code 1: no plan was found at any budget.
Ctrl-C or SIGTERM: what was whole until then is told, and nothing drawn, with exit code 130."""


@click.command("pareto", help=HELP)
@click.argument("factory", metavar="[MODULE:FACTORY]", required=False)
@shape_options
@hardware_option
@click.option("--budgets", type=click.IntRange(2, 100), default=8, show_default=True, help="How many.")
@click.option("--position", type=float, default=0.1, show_default=True, help="Where the crossing is looked for.")
@click.option("--work", type=float, default=0.02, show_default=True, help="Of each planner: same work, same answer.")
@click.option("--time-limit", type=float, metavar="S", help="Seconds for all plans together, as far as work allows.")
@click.option("--picture", type=click.Path(path_type=Path), metavar="P.svg", help="Where to draw it, .svg or .png.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of tables.")
def command(factory: str | None, shape: str | None, as_json: bool, **options: Any) -> int:
    """See HELP."""
    if (factory is None) == (shape is None):
        raise InvalidInput("give either MODULE:FACTORY or --shape NAME: one of them is the step")
    position, work, picture = options["position"], options["work"], options["picture"]
    if not 0 <= position <= 1:
        raise InvalidInput(f"--position is {position}: give 0 (the least budget) to 1 (everything kept)")
    if not (work >= 0 and math.isfinite(work)):
        raise InvalidInput(f"--work is {work}: give a finite number of at least 0")
    if options["time_limit"] is not None and not options["time_limit"] >= 0:
        raise InvalidInput(f"--time-limit is {options['time_limit']}: give at least 0")
    if picture is not None:
        if picture.suffix not in SUFFIXES:
            raise InvalidInput(f"--picture is {picture}, of no kind that can be drawn: end it in .svg or .png")
        picture = writable(picture, "--picture")
    with Interrupts(patient=False) as interrupts:
        found = _found(factory, shape, options)
    if interrupts.asked_by is not None and not found.points:
        raise KeyboardInterrupt
    found = replace(found, interrupted=interrupts.asked_by is not None)
    if picture is not None and not found.interrupted:
        _draw(found, picture)
    if as_json:
        print_json(found.told())
    else:
        _show(found)
    if found.out_of_time and interrupts.asked_by is None:
        click.echo(f"bayplan: warning: {LATE.format(len(found.points), options['budgets'])}", err=True)
    if interrupts.asked_by is not None:
        drawn = "; nothing was drawn" if picture is not None else ""
        whole = f"what is told was whole until then, {len(found.points)} of {options['budgets']} budgets{drawn}"
        return told_interrupted(interrupts, whole)
    return 0 if any(point.joint_us is not None for point in found.points) else 1


def _found(factory: str | None, shape: str | None, options: dict[str, Any]) -> "Pareto":
    from experiments.commands.kinds.face import Request
    from experiments.joint.pareto import Allowed, Crossing, length_crossings, pareto
    from solvers.joint.make import make_joint_problem

    machine, position = read_hardware(options["hardware"]), options["position"]
    limits = Limits(time_s=LONGEST_S, work=options["work"])
    time_s = math.inf if options["time_limit"] is None else options["time_limit"]
    cut = {name: options[name] for name in CUT}
    if factory is not None:
        from experiments.commands.fit import refuse_cut
        from experiments.fit.program import recorded_program

        refuse_cut(cut)
        one_thread()
        graph = recorded_program(factory, machine).trace.graph
        for doubt in (*doubts(graph), *sizes_doubts(graph), *temporaries_doubts(graph)):
            click.echo(f"bayplan: warning: {printable(doubt)}", err=True)
        problem = make_joint_problem(graph, machine)
        return pareto(problem, machine.name, options["budgets"], position, limits, time_s=time_s)
    request = Request("pareto", options["hardware"], machine, None, cut)
    problem, sequence = _problem(request, str(shape))

    def lengths(allowed: Allowed) -> tuple[Crossing, ...]:
        def make(length: int) -> "JointProblem":
            return _problem(replace(request, cut={**cut, "sequence": length}), str(shape))[0]

        return length_crossings(make, sequence, position, allowed)

    return pareto(problem, machine.name, options["budgets"], position, limits, lengths, time_s)


def _problem(request: "Request", shape: str) -> tuple["JointProblem", int]:
    """The stage's problem, and the tokens of a sample."""
    from experiments.commands.kinds.stage import stage_of
    from solvers.joint.make import make_joint_problem

    stage = stage_of(request, shape)
    problem = make_joint_problem(stage.graph, request.machine)
    others = (stage.inflight - 1) * (
        stage.layers * stage.costs.kept_bytes + sum(e.activation_bytes for e in stage.extras)
    )
    return msgspec.structs.replace(problem, static_bytes=problem.static_bytes + others), stage.shape.sequence


def _show(found: "Pareto") -> None:
    print_figures(
        found.name,
        [
            ("hardware", found.hardware),
            ("how", "solved and judged; nothing ran on a GPU"),
            ("least budget", show_bytes(found.least_budget_bytes)),
            ("everything kept", show_bytes(found.peak_bytes)),
            ("step, everything kept", f"{found.base_us / 1000:.3f} ms"),
        ],
    )
    print_table("steps in ms, over everything kept", HEADERS, [_cells(found, point) for point in found.points])
    pays = [
        *([] if not found.rates else [("it pays from a link of", _pays_rates(found))]),
        *([] if not found.lengths else [("and from a sequence of", _pays_lengths(found))]),
    ]
    if pays:
        print_figures(f"swapping beside recomputation alone, at position {found.position:g}", pays)


def _cells(found: "Pareto", point: "Point") -> tuple[str, ...]:
    def step(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value / 1000:.3f} (+{show_share((value - found.base_us) / found.base_us)})"

    gap = None if not point.joint_us else (point.joint_us - point.bound_us) / point.joint_us
    return (
        show_bytes(point.budget_bytes),
        show_share(point.budget_bytes / found.peak_bytes),
        step(point.greedy_us),
        step(point.joint_us),
        step(point.bound_us),
        "-" if gap is None else show_share(gap),
    )


def _pays_rates(found: "Pareto") -> str:
    from experiments.joint.pareto import first_paying

    first, tried = first_paying(found.rates), [f"{one.value / 1e9:g}" for one in found.rates]
    if first is None:
        return f"none: not even {tried[-1]} GB/s beats recomputation alone"
    return f"{first / 1e9:g} GB/s {'or less' if first == found.rates[0].value else 'on'} (tried: {', '.join(tried)})"


def _pays_lengths(found: "Pareto") -> str:
    from experiments.joint.pareto import first_paying

    first, tried = first_paying(found.lengths), [one.value for one in found.lengths]
    if first is None:
        return f"none up to {tried[-1]} tokens"
    return f"{first} tokens {'or less' if first == tried[0] else 'on'} (tried: {', '.join(map(str, tried))})"


def _draw(found: "Pareto", place: Path) -> None:
    from experiments.joint.picture import pareto_figure
    from experiments.plots import png_bytes, svg_text

    figure = pareto_figure(found)
    if place.suffix == ".svg":
        place.write_text(svg_text(figure), encoding="utf-8")
    else:
        place.write_bytes(png_bytes(figure))
