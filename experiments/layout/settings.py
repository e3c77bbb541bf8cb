"""The settings of an experiment that executes layouts: types, ranges, and the sentence for a fault."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments import config
from experiments.compose import Root, read_root
from experiments.config import HardwareConf, ModelConf, names_a_folder, within
from experiments.hardware import read_hardware
from experiments.kinds import LAYOUT
from experiments.models import GptShape
from experiments.ranks.settings import plain_gpt
from solvers.ir import InvalidInput
from solvers.ir.amounts import parse_bytes
from solvers.planner import solver_entry, solver_names


@dataclass
class LargerConf:
    """A GPT of float32 that is planned by its shapes alone, on one device of a hardware file; of no layers: none."""

    layers: int = 40
    width: int = 5120
    heads: int = 40
    context: int = 1024
    batch: int = 4
    hardware: str = "protrain-a100"
    host_budget: str = "1TiB"
    solver: str = "search"

    def __post_init__(self) -> None:
        """Refuse what is no GPT."""
        within("larger.layers", self.layers, least=0, most=1000)
        for name in ("width", "heads", "context", "batch"):
            within(f"larger.{name}", getattr(self, name), least=1, most=1_000_000)
        if self.width % self.heads:
            raise InvalidInput(f"larger.width is {self.width}, no multiple of the {self.heads} heads: choose one")
        if self.layers == 1:
            raise InvalidInput("larger.layers is 1, of which nothing repeats: choose at least 2, or 0 for no such row")


@dataclass
class LayoutSettings:
    """One experiment: a GPT trains on real text on a device that holds 1/`times_larger` of its states, by layouts.

    States are 16 bytes a parameter: parameter, gradient and AdamW's two moments, in float32. `host_budget` is what the
    host has for them. `policies`: a name, and the solver of kind `layout` that decides. `fsdp2` trains with PyTorch's
    FSDP2 and CPU offload besides, on a device that holds everything, and once more as the first policy's plan says.
    `noise` (0: not) repeats each policy with every kernel's time varied. `larger` is planned by its shapes.
    """

    kind: str = LAYOUT
    name: str = "protrain"
    steps: int = 10
    times_larger: float = 3.0
    host_budget: str = "1GiB"
    policies: dict[str, str] = field(default_factory=dict)
    fsdp2: bool = True
    noise: float = 0.1
    larger: LargerConf = field(default_factory=LargerConf)
    hardware: HardwareConf = MISSING
    model: ModelConf = MISSING
    run_dir: str | None = None
    force: bool = False
    plots: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no run has."""
        within("steps", self.steps, least=4, most=10_000)
        within("times_larger", self.times_larger, least=0.1, most=100)
        within("noise", self.noise, least=0, most=0.5)
        parse_bytes(self.host_budget, "host_budget")
        names_a_folder(self.name)
        if self.kind != LAYOUT:
            raise InvalidInput(f"kind is {self.kind!r}, but this experiment is of the kind {LAYOUT!r}: leave it out")


class ComposedLayout(NamedTuple):
    """Settings, the model's shape, and the settings as YAML text."""

    settings: LayoutSettings
    shape: GptShape
    yaml: str


def register() -> None:
    """Make the types known to Hydra, with those of the groups that this experiment shares with others."""
    config.register()
    ConfigStore.instance().store(group="schema", name="layout", node=LayoutSettings)


ROOT = Root("layout", register)


def read_layout_settings(overrides: Sequence[str]) -> ComposedLayout:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(ROOT, overrides)
    found = cast("LayoutSettings", settings)
    if not found.policies:
        raise InvalidInput("no policy is chosen, but a layout needs one: choose one, as in +policies.search=search")
    for name, solver in found.policies.items():
        _require_solver(f"policies.{name}", solver)
    _require_solver("larger.solver", found.larger.solver)
    read_hardware(found.larger.hardware)
    parse_bytes(found.larger.host_budget, "larger.host_budget")
    return ComposedLayout(found, plain_gpt(found.model), yaml)


def _require_solver(place: str, solver: str) -> None:
    if solver_entry(solver).kind != "layout":
        raise InvalidInput(
            f"{place} is {solver!r}, which decides no layouts: choose of {', '.join(solver_names('layout'))}"
        )
