"""Options of several commands: the shape of a model, how it is cut into stages, and the hardware."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from experiments.commands.completion import names_or_files
from experiments.hardware import hardware_names
from experiments.shapes import shape_names

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

CUT = (
    "tensor",
    "pipeline",
    "microbatch",
    "microbatches",
    "stage",
    "layers",
    "sequence",
    "sequence_parallel",
    "ungrouped",
)
"""The names of the options that say how a shape is cut."""

_OPTIONS = (
    click.option(
        "--shape",
        metavar="NAME",
        help="A shape file, or a name in conf/model/shapes.",
        shell_complete=names_or_files(shape_names),
    ),
    click.option("--tensor", type=click.IntRange(1), help="Devices that share each layer.  [default: 1]"),
    click.option("--pipeline", type=click.IntRange(1), help="Stages.  [default: 1]"),
    click.option("--microbatch", type=click.IntRange(1), help="Samples of one pass; needed with --shape."),
    click.option("--microbatches", type=click.IntRange(1), help="Passes of a step.  [default: one a stage]"),
    click.option("--stage", type=click.IntRange(0), help="Which stage, from 0.  [default: 0]"),
    click.option("--layers", type=click.IntRange(1), help="Its layers.  [default: an even share]"),
    click.option("--sequence", type=click.IntRange(1), help="Tokens of a sample.  [default: the shape's]"),
    click.option("--sequence-parallel", is_flag=True, default=None, help="Cut norms and dropouts along the sequence."),
    click.option("--ungrouped", is_flag=True, default=None, help="Leave small operators apart."),
)


hardware_option = click.option(
    "--hardware",
    required=True,
    metavar="H",
    help="A hardware file, or a name in conf/hardware.",
    shell_complete=names_or_files(hardware_names),
)


def shape_options(command: CommandT) -> CommandT:
    """Give a command `--shape`, and the options that say how it is cut (`CUT`)."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
