"""From command-line overrides to settings: Hydra composes, this module judges and puts each fault into one sentence."""

import contextlib
import copy
import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, cast

from hydra import initialize_config_module
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import _save_config
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.config import Settings, register
from experiments.run_directory import HYDRA, RunDirectory
from experiments.sentences import in_sentences, kind_of_setting, names_of, read_override
from experiments.trust import PROCESSES, own_target, require_plain_search, require_trusted
from solvers.ir import InvalidInput
from solvers.ir.amounts import parse_budget
from solvers.ir.names import unknown

BYTES, SHARE = "problem.budget_bytes", "problem.budget_fraction"
PERCENT = 10**9
"""What stands for the peak while a percentage is read."""


@dataclasses.dataclass
class ProcessesConf:
    """`hydra/launcher=processes hydra.launcher.workers=2`."""

    _target_: str = PROCESSES
    workers: int = 2


class Composed(NamedTuple):
    """Settings, and the same as YAML text."""

    settings: Settings
    yaml: str


class Root(NamedTuple):
    """A configuration in `conf/` that experiments start from, and what makes its types known to Hydra."""

    name: str
    register: Callable[[], None]


TRAINING = Root("config", register)


def read_settings(overrides: Sequence[str]) -> Composed:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(TRAINING, overrides)
    return Composed(cast("Settings", settings), yaml)


def _budget_read(overrides: Sequence[str]) -> list[str]:
    """The overrides, a budget in bytes read as on any command line; it takes the place of the file's own share."""
    read: list[str] = []
    shares = any(override.lstrip("+~").startswith(f"{SHARE}=") for override in overrides)
    for override in overrides:
        key, _, text = override.lstrip("+").partition("=")
        if key != BYTES or text.strip().lower() in ("null", "") or "," in text:
            read.append(override)
            continue
        text = text.strip().strip("'\"")
        amount = parse_budget(text, PERCENT, BYTES)  # a share is of the peak, which is not known yet
        if text.endswith("%"):
            read.append(f"{SHARE}={Decimal(amount) / PERCENT}")
        else:
            read += [f"{BYTES}={amount}", *([] if shares else [f"{SHARE}=null"])]
    return read


def read_root(root: Root, overrides: Sequence[str]) -> tuple[object, str]:
    """The settings of a root, and the same as YAML text; raises as `read_settings`."""
    with hydra_of(root) as hydra:
        return judge(composed_by(hydra, root, overrides))


@contextlib.contextmanager
def hydra_of(root: Root) -> Iterator[Hydra]:
    """Hydra itself, with this project's configuration and the root's types."""
    root.register()
    ConfigStore.instance().store("processes", ProcessesConf, group="hydra/launcher", provider="bayplan")
    OmegaConf.register_new_resolver("cell", cell_name, replace=True)
    # Another program's Hydra in this process would be in the way, and ours in its.
    GlobalHydra.instance().clear()
    with initialize_config_module("conf", version_base="1.3", job_name="bayplan"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        yield hydra


def composed_by(hydra: Hydra, root: Root, overrides: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
    """All that the overrides ask for, Hydra's own part too, which may run nothing but the project's own parts.

    In a multirun what is swept over is left out. Raises `InvalidInput` with one sentence for any fault.
    """
    overrides = with_budget(root, overrides)
    if mode is RunMode.RUN:
        for override in overrides:
            refuse_several(override)
    for override in overrides:
        read_override(override)
    require_plain_search(overrides)
    with in_sentences():
        try:
            config = hydra.compose_config(root.name, list(overrides), run_mode=mode, from_shell=False)
        except KeyError as error:
            if type(error) is not KeyError or error.args[0] in os.environ:
                raise
            raise InvalidInput(f"hydra.job.env_copy names {error.args[0]}, which is not set: set it first") from error
        require_trusted(config)
        return config


def with_budget(root: Root, overrides: Sequence[str]) -> list[str]:
    """The overrides, with the budget of a training in plain bytes or as a share."""
    return _budget_read(overrides) if root is TRAINING else list(overrides)


def keep_hydra(directory: RunDirectory, root: Root, overrides: Sequence[str]) -> None:
    """Write what Hydra writes of every run (`.hydra/config.yaml`, `hydra.yaml`, `overrides.yaml`) to its folder."""
    with hydra_of(root) as hydra:
        config = composed_by(hydra, root, overrides)
        task = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        place = directory.path / HYDRA
        _save_config(task, "config.yaml", place)
        _save_config(OmegaConf.masked_copy(config, "hydra"), "hydra.yaml", place)
        _save_config(config.hydra.overrides.task, "overrides.yaml", place)


def cell_name(overrides: str) -> str:
    """A folder's name that people can read, of a cell's overrides, with a hash that keeps two cells apart."""
    digest = hashlib.sha256(overrides.encode()).hexdigest()[:8]
    return f"{re.sub('[^A-Za-z0-9.=,_-]+', '_', overrides)[:100] or 'all'}-{digest}"


def refuse_several(override: str) -> None:
    """Hydra would take the last of a list; only solvers may be several."""
    key, _, value = override.lstrip("+").partition("=")
    if key in ("hardware", "model", "problem", "experiment") and value.strip().startswith("["):
        names = value.strip().strip("[]").replace(" ", "")
        raise InvalidInput(f"{key} is {value.strip()}: choose one, or sweep over them with -m and {key}={names}")


def judge(config: DictConfig) -> tuple[object, str]:
    """The settings in what Hydra composed, and the same as YAML text; raises `InvalidInput` with one sentence."""
    config = _task_of(config)
    with in_sentences():
        _refuse_strangers(config, "")
        absent = _missing_values(config, "")
        if absent:
            raise InvalidInput(f"{absent[0]} has no value: give {absent[0]}=…")
        return OmegaConf.to_object(config), OmegaConf.to_yaml(config, resolve=True)


def judge_shown(config: DictConfig) -> None:
    """As `judge`, but values may be missing still: then ranges are not looked at."""
    task = _task_of(config)
    with in_sentences():
        _refuse_strangers(task, "")
        if not _missing_values(task, ""):
            OmegaConf.to_object(task)


def _task_of(config: DictConfig) -> DictConfig:
    """A copy without Hydra's own part."""
    config = copy.deepcopy(config)
    OmegaConf.set_struct(config, False)
    OmegaConf.set_readonly(config, False)
    config.pop("hydra", None)
    return config


def _refuse_strangers(node: Any, place: str) -> None:
    """`+key=…` opens Hydra's structs: so look again at every key, and at fields that `~key` took away."""
    if isinstance(node, ListConfig) or not isinstance(node, DictConfig) or node._is_missing():
        return
    kind = OmegaConf.get_type(node)
    own_target(node, kind, place)
    if dataclasses.is_dataclass(kind):
        fields = names_of(kind)
        for key in node:
            if key not in fields:
                raise unknown(kind_of_setting(place[:-1]), str(key), fields)
        for name in fields:
            if name not in node and not OmegaConf.is_missing(node, name):
                raise InvalidInput(f"{place}{name} was removed, but it is needed: leave out ~{place}{name}")
    for key in map(str, node):
        if not OmegaConf.is_missing(node, key):
            _refuse_strangers(node[key], f"{place}{key}.")


def _missing_values(node: DictConfig, place: str) -> list[str]:
    found: list[str] = []
    for key in map(str, node):
        if OmegaConf.is_missing(node, key):
            found.append(f"{place}{key}")
        elif isinstance(node[key], DictConfig):
            found += _missing_values(node[key], f"{place}{key}.")
    return found
