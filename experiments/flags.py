"""The command line of experiments, as Hydra reads it: overrides and Hydra's flags, every fault in one sentence."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from hydra._internal.utils import get_args_parser

from experiments.places import quoted
from experiments.trust import SEARCH_PATH, require_plain_search
from solvers.ir import InvalidInput


class Flags(NamedTuple):
    """What was asked: overrides, and what Hydra's flags say, as its parser names it."""

    words: list[str]
    given: argparse.Namespace

    @property
    def shows(self) -> bool:
        """Whether something is only shown."""
        given = self.given
        return bool(given.help or given.hydra_help or given.cfg or given.info or given.shell_completion)

    @property
    def sweeps(self) -> bool:
        """Whether a grid is asked for, by flag or by `hydra.mode=MULTIRUN`."""
        return bool(self.given.multirun) or "hydra.mode=MULTIRUN" in self.words


def parser() -> argparse.ArgumentParser:
    """Hydra's own parser."""
    made: argparse.ArgumentParser = get_args_parser()
    for action in made._actions:
        if "--shell-completion" in action.option_strings:
            action.help = "install=SHELL: as bayplan completion SHELL; query=SHELL: what a shell asks"
    return made


def read_flags(argv: Sequence[str]) -> Flags:
    """The command line apart; raises `InvalidInput` in one sentence where Hydra would print its usage."""
    known = parser()

    def refuse(message: str) -> NoReturn:
        raise InvalidInput(f"{message}: write settings as key=value; --help lists flags and groups")

    known.error = refuse  # type: ignore[method-assign]
    given, others = known.parse_known_intermixed_args(list(argv))
    if others:
        flags = sorted(name for action in known._actions for name in action.option_strings if name.startswith("--"))
        raise InvalidInput(f"there is no flag {others[0]!r}: write settings as key=value; flags are {', '.join(flags)}")
    if given.experimental_rerun:
        raise InvalidInput("--experimental-rerun runs code from a pickle: repeat a run by its .hydra/overrides.yaml")
    if given.config_path or given.config_name:
        raise InvalidInput("--config-path and --config-name are given by the experiment: choose experiment=NAME")
    asked = [given.run, bool(given.cfg), given.multirun, given.shell_completion, given.info is not None]
    if sum(asked) > 1:
        raise InvalidInput("of --run, --multirun, --cfg, --info and --shell-completion give one only")
    if given.resolve and not (given.cfg or given.help):
        raise InvalidInput("--resolve belongs to --cfg or --help: give it together with one of them")
    words = list(given.overrides)
    require_plain_search(words)
    return Flags(words if given.config_dir is None else [*words, _searched(given.config_dir, words)], given)


def _searched(folder: str, words: Sequence[str]) -> str:
    """`--config-dir` as the override that means the same, so that it reaches every process of a sweep."""
    place = Path(folder).resolve()
    if not place.is_dir():
        raise InvalidInput(
            f"--config-dir {folder} is no folder: give one with groups in it, as in experiment/NAME.yaml"
        )
    if any(word.lstrip("+").startswith(f"{SEARCH_PATH}=") for word in words):
        raise InvalidInput(f"--config-dir and {SEARCH_PATH} are both given: leave one of them out")
    return f"{SEARCH_PATH}=[{quoted(f'file://{place}')}]"
