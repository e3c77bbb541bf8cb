"""From command-line overrides to settings: Hydra composes, this module judges and puts each fault into one sentence."""

import dataclasses
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar, cast

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config import Settings, register
from solvers.ir import InvalidInput
from solvers.ir.amounts import parse_budget
from solvers.ir.names import unknown

SWEEP_PARAMS = "hydra.sweeper.params."
BYTES, SHARE = "problem.budget_bytes", "problem.budget_fraction"
PERCENT = 10**9
"""What stands for the peak while a percentage is read."""
REMEDIES = {
    "budget_fraction": "write a share of the peak, as in 0.55 for 55 %",
    "budget_bytes": "write whole bytes, as in 3221225472 for 3 GiB",
}
"""What to write where a setting's type alone does not tell."""
T = TypeVar("T")


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
    return _composed(root, overrides, _judge)


def split_flags(argv: Sequence[str], known: set[str]) -> tuple[list[str], set[str]]:
    """Overrides and flags apart; raises `InvalidInput` on any other flag."""
    words = [word for word in argv if not word.startswith("-")]
    flags = {word for word in argv if word.startswith("-")}
    for flag in sorted(flags - known):
        raise InvalidInput(
            f"there is no flag {flag!r}: write settings as key=value; flags are {', '.join(sorted(known))}"
        )
    return words, flags


def read_grid(overrides: Sequence[str], root: Root = TRAINING) -> dict[str, str]:
    """The grid that the chosen experiment's file asks for: axis → values as written there."""
    return _composed(root, [text for text in overrides if not _is_sweep(text)], _file_grid)


def _composed(root: Root, overrides: Sequence[str], use: Callable[[DictConfig], T]) -> T:
    """What `use` makes of the composed settings, every fault in one sentence."""
    overrides = _budget_read(overrides) if root is TRAINING else overrides
    for override in overrides:
        if override.lstrip("+~").startswith("hydra.") and not override.lstrip("+").startswith(SWEEP_PARAMS):
            raise InvalidInput(f"{override!r} sets Hydra itself, which only chooses settings here: leave it out")
        _refuse_several(override)
    root.register()
    # Another program's Hydra in this process would be in the way, and ours in its.
    GlobalHydra.instance().clear()
    with initialize_config_module("conf", version_base="1.3"):
        try:
            return use(compose(root.name, overrides=list(overrides), return_hydra_config=True))
        except InvalidInput:
            raise
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise _fault(error) from error


def _refuse_several(override: str) -> None:
    """Hydra would take the last of a list; only solvers may be several."""
    key, _, value = override.lstrip("+").partition("=")
    if key in ("hardware", "model", "problem", "experiment") and value.strip().startswith("["):
        names = value.strip().strip("[]").replace(" ", "")
        raise InvalidInput(f"{key} is {value.strip()}: choose one, or sweep over them with -m and {key}={names}")


def expand_grid(overrides: Sequence[str], grid: dict[str, str]) -> list[list[str]]:
    """Every combination of the swept values, each as plain overrides; an override on the line beats the file's axis."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        axes = [_values(override) for override in parsed]
        given = {override.key_or_group for override in parsed}
        filed = [f"{key}={value}" for key, value in grid.items() if key not in given]
        axes += [_values(override) for override in OverridesParser.create().parse_overrides(filed)]
    except (HydraException, OmegaConfBaseException) as error:
        raise InvalidInput(f"{_brief(error)}: write a sweep as key=value,value") from error
    cells: list[list[str]] = [[]]
    for values in axes:
        cells = [[*cell, value] for cell in cells for value in values]
    return cells


def _is_sweep(text: str) -> bool:
    try:
        return bool(OverridesParser.create().parse_override(text).is_sweep_override())
    except HydraException:
        return False  # composing it will say what is wrong


def _values(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _judge(config: DictConfig) -> tuple[object, str]:
    OmegaConf.set_struct(config, False)
    OmegaConf.set_readonly(config, False)
    config.pop("hydra")
    _refuse_strangers(config, "")
    absent = _missing_values(config, "")
    if absent:
        raise InvalidInput(f"{absent[0]} has no value: give {absent[0]}=…")
    settings = OmegaConf.to_object(config)
    return settings, OmegaConf.to_yaml(config, resolve=True)


def _file_grid(config: DictConfig) -> dict[str, str]:
    params = config.hydra.sweeper.get("params")
    return {str(key): str(value) for key, value in (params or {}).items()}


def _refuse_strangers(node: Any, place: str) -> None:
    """`+key=…` opens Hydra's structs: so look again at every key, and at fields that `~key` took away."""
    if isinstance(node, ListConfig) or not isinstance(node, DictConfig) or node._is_missing():
        return
    kind = OmegaConf.get_type(node)
    if dataclasses.is_dataclass(kind):
        fields = _names(kind)
        for key in node:
            if key not in fields:
                raise unknown(_kind_of_setting(place[:-1]), str(key), fields)
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


def _fault(error: Exception) -> InvalidInput:
    """What went wrong in Hydra's or OmegaConf's many words, in one sentence of ours."""
    if isinstance(error, MissingConfigException):
        return _missing_choice(error)
    if isinstance(error, OverrideParseException):
        return InvalidInput(f"cannot read the override {error.override!r}: write key=value")
    if isinstance(error, ConfigCompositionException):
        return _composition_fault(error)
    return _wrong_value(error) or InvalidInput(f"{_brief(error)}: correct the overrides")


def _missing_choice(error: MissingConfigException) -> InvalidInput:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    options = error.options or (GlobalHydra.instance().config_loader().get_group_options(group) if group else [])
    return unknown(group or "configuration", name, map(str, options))


def _composition_fault(error: ConfigCompositionException) -> InvalidInput:
    text = _brief(error)
    if text.startswith("Could not override"):
        return _stranger(text.split("'")[1].partition("=")[0], error.__cause__)
    if text.startswith("Ambiguous value for argument"):
        override = text.removeprefix("Ambiguous value for argument ")
        return InvalidInput(f"{override} holds several values: add -m to sweep over them")
    return _wrong_value(error.__cause__) or InvalidInput(f"{text}: correct the overrides")


def _wrong_value(error: BaseException | None) -> InvalidInput | None:
    place = getattr(error, "full_key", None)
    if error is None or not place:
        return None
    remedy = REMEDIES.get(place.rpartition(".")[2], "correct the value")
    return InvalidInput(f"{place}: {_brief(error)}: {remedy}")


def _stranger(key: str, cause: BaseException | None) -> InvalidInput:
    """The sentence for a key that does not exist, with the nearest one that does."""
    place, _, name = key.rpartition(".")
    kind = getattr(cause, "object_type", None)
    if not dataclasses.is_dataclass(kind):
        return InvalidInput(f"{key!r} is no setting, or one of a group: choose groups by name, as in solver=milp-swap")
    known = _names(kind) if place else [*_names(kind), "experiment"]
    return unknown(_kind_of_setting(place), name, known)


def _kind_of_setting(place: str) -> str:
    return f"setting of {place}" if place else "setting"


def _names(kind: Any) -> list[str]:
    return [entry.name for entry in dataclasses.fields(kind)]


def _brief(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].strip().rstrip(".:")
