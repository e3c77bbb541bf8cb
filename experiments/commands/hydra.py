"""Commands whose arguments are Hydra's: everything behind the name goes on to it, `--help` too."""

from collections.abc import Callable
from importlib import import_module

import click

from experiments.commands.completion import overrides as completed


def hydra_command(name: str, about: str, module: str | None = None) -> click.Command:
    """The command that hands its arguments to `main(argv) -> exit code` of `experiments.<module, or name>`."""

    @click.command(
        name,
        help=about,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    @click.argument("overrides", nargs=-1, type=click.UNPROCESSED, shell_complete=completed)
    def command(overrides: tuple[str, ...]) -> int:
        main: Callable[[list[str]], int] = import_module(f"experiments.{module or name}").main
        return main(list(overrides))

    return command
