"""`bayplan solvers`: what can solve what on this machine."""

import dataclasses
from typing import Any

import click

from experiments.commands.show import print_table
from solvers.planner import SOLVERS, solver_names, solver_parameters

HELP = """List the solvers by kind of problem, with their parameters for `solve --set`, and the engines.

Engines are listed with their version and the state of their licence."""


@click.command("solvers", help=HELP)
def command() -> int:
    """See HELP."""
    from solvers.engines import engines

    for kind in dict.fromkeys(entry.kind for entry in SOLVERS.values()):
        rows = [(name, SOLVERS[name].about, _parameters(name)) for name in solver_names(kind)]
        print_table(f"solvers of {kind} problems", ("solver", "what it is", "parameters"), rows)
    present = [(engine.name, engine.title, engine.version or "absent", engine.licence) for engine in engines()]
    print_table("engines", ("engine", "name", "version", "licence"), present)
    return 0


def _parameters(name: str) -> str:
    """The parameters that a command line can set, with their defaults."""
    return ", ".join(
        f"{key}={_shown(field)}"
        for key, field in solver_parameters(name).items()
        if isinstance(field.default, bool | int | float | str)
    )


def _shown(field: dataclasses.Field[Any]) -> str:
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
