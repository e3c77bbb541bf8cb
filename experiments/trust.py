"""What a configuration may name to be run: the project's own parts and Hydra's plugins, nothing else."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import MISSING, DictConfig, OmegaConf

from solvers.ir import InvalidInput

TARGET = "_target_"
SAMPLERS = "optuna.samplers."
"""Where a sampler of the optuna sweeper comes from."""
PROCESSES = "experiments.sweeping.processes.Processes"
"""This project's own launcher."""
STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
REMEDY = "no configuration runs code of its own choice here: leave it out"


def own_target(node: DictConfig, kind: Any, place: str) -> None:
    """Refuse a `_target_` other than the one that the node's type states; `place` ends in a dot, or is empty."""
    if TARGET not in node or OmegaConf.is_missing(node, TARGET):
        return
    entries = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    stated = {entry.default for entry in entries if entry.name == TARGET}
    if node[TARGET] not in stated:
        raise InvalidInput(f"{place}{TARGET} is {str(node[TARGET])!r}, but {REMEDY}")


def require_trusted(hydra: DictConfig) -> None:
    """Refuse whatever of Hydra's own settings would import or call what the user names."""
    if hydra.get("callbacks"):
        raise InvalidInput(f"hydra.callbacks names {', '.join(map(str, hydra.callbacks))}, but {REMEDY}")
    allowed = {
        "launcher": {*_plugins(Launcher), PROCESSES},
        "sweeper": set(_plugins(Sweeper)),
    }
    for place, value in _values(OmegaConf.to_container(hydra, resolve=False), ""):
        _require_logging(place, value)
        name = place.removesuffix(f".{TARGET}")
        if name == place and place != "sweeper.custom_search_space":
            continue
        sampler = name == "sweeper.sampler" and str(value).startswith(SAMPLERS)
        if value not in (None, MISSING) and not sampler and value not in allowed.get(name, ()):
            raise InvalidInput(f"hydra.{place} is {str(value)!r}, but {REMEDY}")


def _require_logging(place: str, value: Any) -> None:
    """Python's logging calls what stands under `()` and `class`, and imports what follows `ext://`."""
    if not place.startswith(("job_logging.", "hydra_logging.")):
        return
    last = place.rpartition(".")[2]
    foreign = last in ("()", "factory") or (last == "class" and not str(value).startswith("logging."))
    if foreign or (str(value).startswith("ext://") and value not in STREAMS):
        raise InvalidInput(f"hydra.{place} is {str(value)!r}, but {REMEDY}")


def _plugins(kind: type[Any]) -> Iterator[str]:
    for plugin in Plugins.instance().discover(kind):
        yield f"{plugin.__module__}.{plugin.__qualname__}"


def _values(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every value of plain dictionaries and lists with its place."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _values(value, f"{place}.{key}" if place else str(key))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _values(value, f"{place}[{number}]")
    else:
        yield place, node
