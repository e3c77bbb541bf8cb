"""Faults of Hydra and OmegaConf, each in one sentence of this project's."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from solvers.ir import InvalidInput
from solvers.ir.names import unknown

REMEDIES = {
    "budget_fraction": "write a share of the peak, as in 0.55 for 55 %",
    "budget_bytes": "write whole bytes, as in 3221225472 for 3 GiB",
}
"""What to write where a setting's type alone does not tell."""
EXTRAS = {
    "hydra/launcher/joblib": "hydra-joblib-launcher",
    "hydra/launcher/submitit_local": "hydra-submitit-launcher",
    "hydra/launcher/submitit_slurm": "hydra-submitit-launcher",
    "hydra/launcher/ray": "hydra-ray-launcher",
    "hydra/launcher/ray_aws": "hydra-ray-launcher",
    "hydra/sweeper/optuna": "hydra-optuna-sweeper",
}
"""Hydra's choices that come with packages of their own."""


def read_override(word: str) -> Override:
    """An override by Hydra's grammar; raises `InvalidInput` that names it."""
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException as error:
        raise _unreadable(word) from error


@contextlib.contextmanager
def in_sentences() -> Iterator[None]:
    """Hydra's and OmegaConf's faults as `InvalidInput`, each in one sentence."""
    try:
        yield
    except InvalidInput:
        raise
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise _fault(error) from error
    except AttributeError as error:  # OmegaConf's own, where a dictionary is merged into null
        place = re.search(r"full_key: (\S+)", str(error))
        if place is None:
            raise
        raise InvalidInput(
            f"{place[1]} is null and takes no dictionary here: give each key its own override"
        ) from error


def _fault(error: Exception) -> InvalidInput:
    """What went wrong in Hydra's or OmegaConf's many words, in one sentence of ours."""
    if isinstance(error, MissingConfigException):
        return _missing_choice(error)
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, ConfigCompositionException):
        return _composition_fault(error)
    return _wrong_value(error) or InvalidInput(f"{_brief(error)}: correct the overrides")


def _unreadable(override: str) -> InvalidInput:
    return InvalidInput(
        f"cannot read the override {override!r}: write key=value, and quote a value with other signs than letters and "
        "digits for Hydra, as in 'key=\"…\"'"
    )


def _missing_choice(error: MissingConfigException) -> InvalidInput:
    package = EXTRAS.get(str(error.missing_cfg_file))
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    if package is not None:
        extra = "ray" if "ray" in package else "sweeps"
        return InvalidInput(
            f"{group}={name} needs the package {package}, which is not installed: install it, or all of Bayplan's "
            f"extra [{extra}]"
        )
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
    known = names_of(kind) if place else [*names_of(kind), "experiment"]
    return unknown(kind_of_setting(place), name, known)


def kind_of_setting(place: str) -> str:
    """What a key at this place is."""
    return f"setting of {place}" if place else "setting"


def names_of(kind: Any) -> list[str]:
    """A data class's settings."""
    return [entry.name for entry in dataclasses.fields(kind)]


def _brief(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].strip().rstrip(".:")
