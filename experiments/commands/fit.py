"""`bayplan fit`: whether a training step fits a device, by technique, before the device is there."""

from dataclasses import replace
from typing import Any

import click
import msgspec

from experiments.commands.cut import CUT, hardware_option, shape_options
from experiments.commands.devices import one_thread
from experiments.commands.interrupts import Interrupts, told_interrupted
from experiments.commands.streams import print_json
from experiments.hardware import read_hardware
from solvers.ir.amounts import BYTES_HELP, parse_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits

HELP = f"""Tell whether a training step fits a device: plain, recomputing, swapping; in bytes and in segments.

The step is MODULE:FACTORY, a function of yours (bayplan profile --help), which is run on the simulated device, or one
stage of a --shape, computed as in bayplan make. No GPU is needed, and none is used. Segments are those of PyTorch's
caching allocator, by its public rules.

A budget is {BYTES_HELP}, or a percentage, as in 80%, of the plain step's peak; without one it is the device's memory
less what no tensor owns (--outside). Exit code 0: some technique fits in segments; 1: none does;
130: Ctrl-C or SIGTERM came, the techniques judged until then are told."""


@click.command("fit", help=HELP)
@click.argument("factory", metavar="[MODULE:FACTORY]", required=False)
@shape_options
@click.option(
    "--attention",
    type=click.Choice(["unfused", "flash"]),
    help="Of a --shape: whether scores and probabilities stand in memory.  [default: the shape's]",
)
@hardware_option
@click.option("--budget", metavar="B", help="Bytes, 8GiB, or 80%; see above.")
@click.option("--outside", metavar="BYTES", help="What no tensor owns: context, libraries.  [default: assumed]")
@click.option("--expandable-segments", is_flag=True, help="As PYTORCH_ALLOC_CONF=expandable_segments:True.")
@click.option(
    "--technique",
    "techniques",
    multiple=True,
    metavar="T",
    help="plain, full, selective, planned, swap, joint, session; several times if need be.  [default: all but session]",
)
@click.option("--solver", default="greedy-swap", show_default=True, metavar="NAME", help="Who plans swaps.")
@click.option("--time-limit", type=float, default=10.0, show_default=True, metavar="S", help="Its seconds a plan.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of tables.")
def command(factory: str | None, shape: str | None, as_json: bool, **options: Any) -> int:
    """See HELP."""
    from experiments.fit.asking import Question, fit_program, fit_stage

    if (factory is None) == (shape is None):
        raise InvalidInput("give either MODULE:FACTORY or --shape NAME: one of them is the step")
    if not options["time_limit"] >= 0:
        raise InvalidInput(f"--time-limit is {options['time_limit']}: give at least 0 seconds")
    outside = options["outside"]
    question = Question(
        hardware=read_hardware(options["hardware"]),
        budget=options["budget"],
        outside_bytes=None if outside is None else parse_bytes(outside, "--outside", "as in 1GiB"),
        expandable=options["expandable_segments"],
        techniques=options["techniques"],
        solver=options["solver"],
        limits=Limits(time_s=options["time_limit"]),
    )
    cut = {name: options[name] for name in CUT}
    attention = options["attention"]
    with Interrupts(patient=False) as interrupts:
        if factory is not None:
            refuse_cut({**cut, "attention": attention})
            one_thread()
            answer = fit_program(factory, question)
        else:
            from experiments.commands.kinds.face import Request
            from experiments.commands.kinds.stage import stage_of

            request = Request("fit", options["hardware"], question.hardware, question.budget, cut)
            stage = stage_of(request, str(shape))
            if attention is not None:
                stage = replace(stage, shape=msgspec.structs.replace(stage.shape, attention=attention))
            answer = fit_stage(stage, question)
    if interrupts.asked_by is not None and not answer.rows:
        raise KeyboardInterrupt
    answer = replace(answer, interrupted=interrupts.asked_by is not None)
    if as_json:
        print_json(answer.told())
    else:
        from experiments.fit.show import show

        show(answer)
    if interrupts.asked_by is not None:
        judged = ", ".join(row.name for row in answer.rows)
        return told_interrupted(interrupts, f"judged until then: {judged}")
    return 0 if answer.fits else 1


def refuse_cut(cut: dict[str, Any]) -> None:
    """Refuse what says how a shape is cut where a program is run."""
    for name, value in cut.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{option} says how a --shape is cut, but MODULE:FACTORY is run: leave it out")
