"""`bayplan solvers`: what can solve what on this machine."""

import dataclasses
from dataclasses import asdict
from typing import Any

import click

from experiments.commands.show import print_table
from experiments.commands.streams import print_json
from solvers.planner import SOLVERS, solver_names, solver_parameters

HELP = """List the solvers by kind of problem, with their parameters for `solve --set`, and the engines.

Engines are listed with their version and the state of their licence."""


@click.command("solvers", help=HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of tables.")
def command(as_json: bool) -> int:
    """See HELP."""
    from solvers.engines import engines

    if as_json:
        print_json({"solvers": [_told(name) for name in solver_names()], "engines": [*map(asdict, engines())]})
        return 0
    for kind in dict.fromkeys(entry.kind for entry in SOLVERS.values()):
        rows = [(name, SOLVERS[name].about, _parameters(name)) for name in solver_names(kind)]
        print_table(f"solvers of {kind} problems", ("solver", "what it is", "parameters"), rows)
    present = [(engine.name, engine.title, engine.version or "absent", engine.licence) for engine in engines()]
    print_table("engines", ("engine", "name", "version", "licence"), present)
    return 0


def _told(name: str) -> dict[str, Any]:
    """A solver as JSON, with the parameters that a command line can set and their defaults."""
    parameters = {key: field.default for key, field in solver_parameters(name).items() if _settable(field)}
    return {"name": name, "kind": SOLVERS[name].kind, "about": SOLVERS[name].about, "parameters": parameters}


def _parameters(name: str) -> str:
    """The parameters that a command line can set, with their defaults."""
    return ", ".join(f"{key}={_shown(field)}" for key, field in solver_parameters(name).items() if _settable(field))


def _settable(field: dataclasses.Field[Any]) -> bool:
    return isinstance(field.default, bool | int | float | str)


def _shown(field: dataclasses.Field[Any]) -> str:
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
