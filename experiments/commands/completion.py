"""`bayplan completion SHELL`: click's own completion of commands and options, and Hydra's of settings."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from solvers.ir.names import unknown

SHELLS = ("bash", "zsh", "fish")
COMPLETE = "_BAYPLAN_COMPLETE"
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
HELP = """Print what SHELL needs to complete Bayplan's commands, options and settings.

bash: eval "$(bayplan completion bash)"; zsh: eval "$(bayplan completion zsh)"; fish: bayplan completion fish | source.
Written to a shell's own start file, it is there in every new one. Behind `compare` and `train`, groups, their choices
and single settings are completed by Hydra itself."""


@click.command("completion", help=HELP)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """See HELP."""
    click.echo(script_of(shell))
    return 0


def script_of(shell: str) -> str:
    """The script for a shell; raises `InvalidInput` for one that click does not know."""
    from experiments.command_line import bayplan

    known = get_completion_class(shell) if shell in SHELLS else None
    if known is None:
        raise unknown("shell", shell, SHELLS)
    return known(bayplan, {}, "bayplan", COMPLETE).source()


def complete(group: click.Command, instruction: str) -> int:
    """Answer a shell; what cannot be completed has no completions, whatever is wrong with the line so far."""
    with contextlib.suppress(Exception):
        return shell_complete(group, {}, "bayplan", COMPLETE, instruction)
    return 1


def names_or_files(names: Callable[[], Iterable[str]]) -> Completion:
    """What completes a parameter: the names that begin so; where none does, files as the shell knows them."""

    def completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names() if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]

    return completed


def overrides(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What Hydra's own completion says of an override that is being typed, behind those already there."""
    from hydra._internal.core_plugins.bash_completion import BashCompletion

    from experiments.compose import hydra_of
    from experiments.kinds import kind_of, root_of

    words, typed, shown = _joined(ctx.params.get(str(param.name)) or (), incomplete)
    root = root_of(kind_of(words))
    with hydra_of(root) as hydra:
        plugin: Any = BashCompletion(hydra.config_loader)
        found = plugin._query(root.name, " ".join([*words, typed]))
    return [CompletionItem(text.removeprefix(shown)) for text in found]


def _joined(words: Sequence[str], incomplete: str) -> tuple[list[str], str, str]:
    """The overrides before, the one being typed, and what of it the shell has taken for words of its own.

    Bash splits `key=value` at the sign, and click drops a sign that comes last: a word without one stands before it.
    """
    whole: list[str] = []
    for word in words:
        if word == "=" or (whole and whole[-1].endswith("=")):
            whole[-1:] = ["".join([*whole[-1:], word])]
        else:
            whole.append(word)
    if whole and not whole[-1].startswith(("-", "~")) and (whole[-1].endswith("=") or "=" not in whole[-1]):
        key = whole.pop().rstrip("=") + "="
        return whole, key + incomplete, key
    return whole, incomplete, ""
