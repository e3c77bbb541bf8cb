"""What Hydra shows without running anything: `--cfg`, `--info`, `--help`, `--hydra-help`, completion."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.commands.completion import script_of
from experiments.compose import Root, composed_by, judge_shown, with_budget
from experiments.flags import Flags, parser
from experiments.kinds import EXPERIMENTS, KINDS, kind_of
from experiments.sentences import in_sentences
from solvers.ir import InvalidInput

HIDDEN = ("schema", "table")
"""Groups that nobody chooses of here: types, and the entries of `bayplan table`."""


def show(hydra: Hydra, root: Root, flags: Flags, usage: str) -> int:
    """Print what was asked for, by Hydra itself; the exit code."""
    given, words = flags.given, with_budget(root, flags.words)
    if given.help:
        print(help_text(hydra, root, words, usage, given.resolve), end="")
        return 0
    with in_sentences():
        if given.hydra_help:
            hydra.hydra_help(config_name=root.name, args_parser=parser(), args=given)
        elif given.cfg:
            _show_configuration(hydra, root, flags)
        elif given.info:
            judge_shown(composed_by(hydra, root, words))  # a fault is one sentence before anything is printed
            hydra.show_info(given.info, config_name=root.name, overrides=words)
        else:
            _complete(hydra, root, flags.words)
    return 0


def _show_configuration(hydra: Hydra, root: Root, flags: Flags) -> None:
    given, words = flags.given, with_budget(root, flags.words)
    config = composed_by(hydra, root, words)
    judge_shown(config)
    there = given.package in (None, "_global_")
    with contextlib.suppress(OmegaConfBaseException):
        there = there or OmegaConf.select(hydra.get_sanitized_cfg(config, given.cfg), given.package) is not None
    if not there:
        raise InvalidInput(f"--package is {given.package!r}, which is not there: leave it out to see all of them")
    hydra.show_cfg(root.name, words, cfg_type=given.cfg, package=given.package, resolve=given.resolve)


def _complete(hydra: Hydra, root: Root, words: list[str]) -> None:
    """Hydra's completion; what installs it is Bayplan's own script, which knows the commands too."""
    asked = dict(word.partition("=")[::2] for word in words)
    if "install" in asked:
        print(script_of(asked["install"]))
    else:
        hydra.shell_completion(config_name=root.name, overrides=words)


def help_text(hydra: Hydra, root: Root, words: list[str], usage: str, resolve: bool) -> str:
    """Usage, groups with their choices, the experiments with what they show, the composed settings, and flags."""
    config = composed_by(hydra, root, words)
    HydraConfig.instance().set_config(config)
    loader: Any = hydra.config_loader
    groups = "".join(f"{group}: {', '.join(names)}\n" for group, names in sorted(_groups(loader.repository)))
    settings = OmegaConf.to_yaml(hydra.get_sanitized_cfg(config, "job"), resolve=resolve)
    experiments = _experiments(hydra, root, words)
    return (
        f"{usage}\n== Groups (group=choice) ==\n{groups}\n== Experiments (experiment=name) ==\n{experiments}\n"
        f"== Settings as composed now (key=value) ==\n{settings}\n"
        f"== Hydra's flags ==\n{hydra.format_args_help(parser())}\n"
    )


def _groups(repository: Any, parent: str = "") -> Iterator[tuple[str, list[str]]]:
    """Groups and their choices, which Hydra lists as well, but copies all that it knows for each."""
    for name in repository.get_group_options(parent, ObjectType.GROUP):
        group = f"{parent}/{name}" if parent else name
        if group.startswith("hydra") or group in (*HIDDEN, "experiment"):
            continue
        choices = repository.get_group_options(group, ObjectType.CONFIG)
        if choices:
            yield group, sorted(choices)
        yield from _groups(repository, group)


def _experiments(hydra: Hydra, root: Root, words: list[str]) -> str:
    """Each experiment with the first sentence of its file."""
    names = sorted(hydra.config_loader.get_group_options("experiment", config_name=root.name, overrides=words))
    return "".join(f"{name}: {_about(EXPERIMENTS / f'{name}.yaml')}\n" for name in names)


def _about(path: Path) -> str:
    if not path.is_file():
        return "of a folder on the search path"
    text = path.read_text(encoding="utf-8")
    comments = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("# "))
    said = re.split(r"\.(?= |$)|: (?=`?bayplan )", comments.removeprefix("@package _global_").strip())[0]
    kind = kind_of([f"experiment={path.stem}"])
    return f"{said} (bayplan {'train' if KINDS[kind].study is None else 'compare'}; {kind})"
