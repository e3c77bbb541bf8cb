"""The settings of a stability experiment: types, ranges, and the sentence for a value outside."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, cast

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments import config
from experiments.compose import Root, read_root
from experiments.config import DeviceKind, GptConf, HardwareConf, ModelConf, names_a_folder, share_of_peak, within
from experiments.kinds import STABILITY
from solvers.ir import InvalidInput


class Policy(Enum):
    """What keeps the training within its budget.

    `unlimited`: all memory, the reference. `none`: nothing. `recompute`: every block again in the backward pass, the
    paper's baseline. `features`: a session as it is. `forgets`: one that drops the policies of other sequences, as
    Algorithm 1 does. `index_guard`: a session that finds tensors by (operator, i-th tensor) as Capuchin does.
    `features_alone` and `index`: the two ways to find tensors without the guard that brings back what an operator
    touches.
    """

    unlimited = "unlimited"
    none = "none"
    recompute = "recompute"
    features = "features"
    forgets = "forgets"
    index_guard = "index_guard"
    features_alone = "features_alone"
    index = "index"


@dataclass
class ScalingConf:
    """Dynamic loss scaling: halved at an overflow, whose step is skipped, doubled after `growth_interval` steps.

    An initial scale below where gradients overflow first grows to there, so that overflows come at the intervals that
    real training has. `half` computes linear layers and attention in float16, whose gradients overflow.
    """

    initial: float = 65_536.0
    growth_interval: int = 100
    half: bool = True

    def __post_init__(self) -> None:
        """Refuse scales that are no float32, and no interval."""
        within("scaling.initial", self.initial, least=2.0**-60, most=2.0**120)
        within("scaling.growth_interval", self.growth_interval, least=1, most=1_000_000)


MOST_BYTES = 2**53
"""The largest budget: every whole number up to it is exact in JSON."""


@dataclass
class StabilitySettings:
    """One experiment; every `validate_every` steps come `validation_batches` forward passes without gradients.

    The budget is `budget_fraction` of the unlimited run's peak, or `budget_bytes`.
    """

    kind: str = STABILITY
    name: str = "stability"
    device: DeviceKind = DeviceKind.sim
    steps: int = 5000
    validate_every: int = 200
    validation_batches: int = 2
    budget_fraction: float | None = 0.8
    budget_bytes: int | None = None
    policies: list[Policy] = field(default_factory=lambda: list(Policy))
    scaling: ScalingConf = field(default_factory=ScalingConf)
    hardware: HardwareConf = MISSING
    model: ModelConf = MISSING
    run_dir: str | None = None
    force: bool = False
    plots: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no training has."""
        within("steps", self.steps, least=1, most=1_000_000)
        within("validate_every", self.validate_every, least=1, most=1_000_000)
        within("validation_batches", self.validation_batches, least=1, most=10_000)
        share_of_peak("budget_fraction", self.budget_fraction)
        if self.budget_bytes is not None:
            _require_bytes(self.budget_bytes)
        if (self.budget_fraction is None) == (self.budget_bytes is None):
            raise InvalidInput(
                f"budget_fraction is {self.budget_fraction} and budget_bytes {self.budget_bytes}: give exactly one of "
                "them, and null for the other"
            )
        names_a_folder(self.name)
        if self.kind != STABILITY:
            raise InvalidInput(f"kind is {self.kind!r}, but this experiment is of the kind {STABILITY!r}: leave it out")
        if len(set(self.policies)) != len(self.policies):
            raise InvalidInput("policies names one twice: leave it out")


def _require_bytes(budget_bytes: object) -> None:
    """Refuse what is no whole number of bytes from 1 to 2**53."""
    whole = isinstance(budget_bytes, int) and not isinstance(budget_bytes, bool)
    if not whole or not 1 <= budget_bytes <= MOST_BYTES:  # type: ignore[operator]
        raise InvalidInput(
            f"budget_bytes is {budget_bytes!r}: give a whole number of bytes from 1 to {MOST_BYTES}, as in "
            "budget_bytes=54525952 (52 MiB)"
        )


class ComposedStability(NamedTuple):
    """Settings, and the same as YAML text."""

    settings: StabilitySettings
    yaml: str


def register() -> None:
    """Make the types known to Hydra, with those of the groups that this experiment shares with others."""
    config.register()
    ConfigStore.instance().store(group="schema", name="stability", node=StabilitySettings)


ROOT = Root("stability", register)


def read_stability_settings(overrides: Sequence[str]) -> ComposedStability:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(ROOT, overrides)
    found = cast("StabilitySettings", settings)
    if not isinstance(found.model, GptConf):
        raise InvalidInput("this experiment trains the byte-level GPT: choose model=gpt-micro or model=gpt")
    return ComposedStability(found, yaml)


def policies_of(settings: StabilitySettings) -> list[Policy]:
    """The policies to run, the reference first: everything else is compared with it."""
    return [Policy.unlimited, *(policy for policy in settings.policies if policy is not Policy.unlimited)]
