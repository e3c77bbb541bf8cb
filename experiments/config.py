"""Every setting of `compare` and `train`: its type, its range, and the sentence for a value outside it."""

import dataclasses
import math
import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments.hardware import hardware_names
from solvers.ir import InvalidInput
from solvers.planner import solver_entry, solver_names

# These classes are not frozen: Hydra fills their fields one override at a time. `compose.read_settings` hands them out
# once, filled and judged, and nobody writes to them afterwards.


JOINT = "joint"
"""The other kind that is executed: its problems are measured while the model trains (`runtime.recompute`)."""
UNNAMED = "custom"
"""The name of an experiment that was given none."""


class DeviceKind(Enum):
    """Where the steps run: the simulated accelerator, or a real one."""

    sim = "sim"
    cuda = "cuda"


class AllocatorKind(Enum):
    """How the simulated device gives memory out: byte by byte, or in segments as PyTorch does on CUDA.

    `caching`: segments of fixed sizes. `expandable`: those that grow page by page (`expandable_segments`).
    """

    exact = "exact"
    caching = "caching"
    expandable = "expandable"


class Baseline(Enum):
    """What a plan is compared with.

    `unlimited`: no budget. `none`: the budget and no plan. `recompute`: `torch.utils.checkpoint` around every block.
    """

    unlimited = "unlimited"
    none = "none"
    recompute = "recompute"


@dataclass
class HardwareConf:
    """A hardware file (a name in `conf/hardware` or a path), perhaps with another rate for its host link."""

    file: str = MISSING
    link_gb_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a link without a rate."""
        within("hardware.link_gb_per_s", self.link_gb_per_s, least=1e-3, most=1e4)


@dataclass
class ModelConf:
    """What is trained; each kind of model has its own fields."""

    _target_: str = MISSING


@dataclass
class GptConf(ModelConf):
    """The byte-level GPT of `experiments.models.gpt`."""

    _target_: str = "experiments.models.GptShape"
    layers: int = 8
    width: int = 128
    heads: int = 4
    context: int = 128
    batch: int = 8
    dropout: float = 0.1
    tied: bool = False
    learning_rate: float = 1e-3
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse shapes that no GPT can have."""
        for name in ("layers", "width", "heads", "context", "batch"):
            within(f"model.{name}", getattr(self, name), least=1, most=65_536)
        within("model.dropout", self.dropout, least=0, most=0.99)
        within("model.learning_rate", self.learning_rate, least=1e-9, most=10)
        within("model.clip", self.clip, least=1e-6, most=1e6)
        within("model.seed", self.seed, least=0, most=2**31 - 1)
        if self.width % self.heads:
            raise InvalidInput(
                f"model.width is {self.width}, not a multiple of model.heads {self.heads}: choose a multiple"
            )


@dataclass
class FactoryConf(ModelConf):
    """One's own model: `MODULE:FACTORY`, callable(device) → (model, optimizer, step)."""

    _target_: str = "experiments.models.OwnModel"
    factory: str = MISSING
    seed: int = 0


@dataclass
class ProblemConf:
    """The problem's kind, and its budget: a fraction of the peak without a plan, or bytes.

    `host_budget_bytes` limits what swapped tensors take of the host (null: they take what they need).
    """

    kind: str = "swap"
    budget_fraction: float | None = None
    budget_bytes: int | None = None
    host_budget_bytes: int | None = None

    def __post_init__(self) -> None:
        """Exactly one way to say the budget, within its range."""
        if self.kind != "swap":
            raise InvalidInput(f"problem.kind is {self.kind!r}, but compare and train execute only 'swap': choose it")
        if (self.budget_fraction is None) == (self.budget_bytes is None):
            raise InvalidInput(
                f"problem.budget_fraction is {self.budget_fraction} and problem.budget_bytes {self.budget_bytes}: "
                "give exactly one of them, and null for the other"
            )
        share_of_peak("problem.budget_fraction", self.budget_fraction)
        within("problem.budget_bytes", self.budget_bytes, least=1, most=2**53)
        within("problem.host_budget_bytes", self.host_budget_bytes, least=0, most=2**53)


@dataclass
class SolverConf:
    """A solver; each one has its own fields (`solver_schema`)."""

    _target_: str = MISSING


@dataclass
class LimitsConf:
    """When a solver stops (`solvers.ir.Limits` checks the ranges)."""

    time_s: float = 10.0
    work: float | None = None
    gap: float = 0.0
    threads: int = 1
    seed: int = 0


@dataclass
class RobustnessConf:
    """Worlds other than the planner's in which each plan is executed too."""

    noise: float = 0.1
    noise_seeds: list[int] = field(default_factory=list)
    hardware: str | None = None
    steps: int = 1

    def __post_init__(self) -> None:
        """Refuse noise that could turn time back."""
        within("robustness.noise", self.noise, least=0, most=0.9)
        within("robustness.steps", self.steps, least=1, most=1000)
        _each("robustness.noise_seeds", self.noise_seeds, least=0, most=2**31 - 1)


@dataclass
class Settings:
    """One experiment."""

    name: str = UNNAMED
    device: DeviceKind = DeviceKind.sim
    allocator: AllocatorKind = AllocatorKind.exact
    steps: int = 4
    baselines: list[Baseline] = field(default_factory=lambda: [Baseline.none, Baseline.unlimited])
    hardware: HardwareConf = MISSING
    model: ModelConf = MISSING
    problem: ProblemConf = MISSING
    solver: dict[str, SolverConf] = field(default_factory=dict)
    limits: LimitsConf = field(default_factory=LimitsConf)
    robustness: RobustnessConf = field(default_factory=RobustnessConf)
    run_dir: str | None = None
    force: bool = False
    plots: bool = True
    cell_timeout_s: float = 600.0

    @property
    def title(self) -> str:
        """What pages and pictures call it: its name, or the name of one's own factory where it has none of its own."""
        factory = self.model.factory if isinstance(self.model, FactoryConf) else None
        return factory if factory is not None and self.name == UNNAMED else self.name

    def __post_init__(self) -> None:
        """Refuse an experiment without steps or with a name that is no folder's."""
        within("steps", self.steps, least=1, most=1_000_000)
        within("cell_timeout_s", self.cell_timeout_s, least=1, most=1e6)
        names_a_folder(self.name)


def register() -> None:
    """Make the types known to Hydra, in a group of their own so that no schema is offered as a choice.

    Hardware files and solvers are choices by their names, so that a new one needs no YAML that repeats it.
    """
    store = ConfigStore.instance()
    store.store(group="schema", name="settings", node=Settings)
    for group, types in (
        ("model", {"gpt": GptConf, "factory": FactoryConf}),
        ("problem", {"problem": ProblemConf}),
    ):
        for name, node in types.items():
            store.store(group=f"schema/{group}", name=name, node=node)
    for name in (*solver_names(ProblemConf.kind), *solver_names(JOINT)):
        store.store(group="solver", name=name, node=solver_schema(name), package=f"solver.{name}")
    for name in hardware_names():
        store.store(group="hardware", name=name, node=HardwareConf(file=name))


def solver_schema(name: str) -> type[SolverConf]:
    """The settings of a solver: its class, and of its parameters those that a setting can hold, with their defaults."""
    kind = solver_class(name)
    hints = typing.get_type_hints(kind)
    held = [entry for entry in dataclasses.fields(kind) if entry.init and hints[entry.name] in (int, float, str, bool)]
    fields: list[tuple[str, Any, Any]] = [("_target_", str, f"{kind.__module__}.{kind.__qualname__}")]
    fields += [(entry.name, hints[entry.name], entry.default) for entry in held]
    return dataclasses.make_dataclass(
        f"{kind.__name__}Conf",
        [(key, hint, field(default=default)) for key, hint, default in fields],
        bases=(SolverConf,),
    )


def solver_class(name: str) -> type[Any]:
    """The class behind a solver's name; this imports its room."""
    module, _, attribute = solver_entry(name).target.partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def names_a_folder(name: str) -> None:
    """Raise `InvalidInput` for an experiment's name that cannot be its folder's."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise InvalidInput(f"name is {name!r}, which names no folder: use letters, digits, - and _")


def within(name: str, value: float | None, *, least: float, most: float) -> None:
    """Raise `InvalidInput` for a setting that is not finite, or outside its range; None is no value."""
    if value is not None and not (math.isfinite(value) and least <= value <= most):
        raise InvalidInput(f"{name} is {value}, outside {least:g}…{most:g}: choose a value inside")


def share_of_peak(name: str, value: float | None) -> None:
    """Raise `InvalidInput` for a budget that is no share of the peak; a percentage without its sign is named."""
    if value is not None and 2 < value <= 200:
        raise InvalidInput(
            f"{name} is {value}, outside 0.01…2: it is a share of the peak, so write {value / 100:g} for {value:g} %"
        )
    within(name, value, least=0.01, most=2)


def _each(name: str, values: Iterable[float], *, least: float, most: float) -> None:
    for number, value in enumerate(values):
        within(f"{name}[{number}]", value, least=least, most=most)
