"""The settings of an experiment with ranks: types, ranges, and the sentence for a value outside."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, cast

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments import config
from experiments.compose import Root, read_root
from experiments.config import GptConf, HardwareConf, ModelConf, within
from experiments.kinds import RANKS
from experiments.models import GptShape
from solvers.ir import InvalidInput

STYLES = {
    "ddp": "DistributedDataParallel: whole models, gradients averaged in buckets during backward",
    "fsdp2": "fully_shard: parameters gathered before use, gradients scattered",
    "tp": "DTensor: every layer's matrices split, activations reduced twice a layer",
    "1f1b": "torch.distributed.pipelining's Schedule1F1B: layers split into stages",
}
"""How a model is spread over ranks."""


class Carrier(Enum):
    """What ranks are: threads of this process, or processes that gloo joins."""

    threads = "threads"
    processes = "processes"


@dataclass
class RanksSettings:
    """One experiment: `steps` training steps of a GPT on real text over `ranks` simulated devices.

    `microbatches` is 1F1B's: each of them is one of the model's batches. `check` compares everything with one process.
    """

    kind: str = RANKS
    name: str = "ranks"
    style: str = "ddp"
    ranks: int = 4
    steps: int = 4
    microbatches: int = 8
    carrier: Carrier = Carrier.threads
    noise: float = 0.0
    check: bool = True
    hardware: HardwareConf = MISSING
    model: ModelConf = MISSING
    run_dir: str | None = None
    plots: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no run has."""
        within("ranks", self.ranks, least=1, most=64)
        within("steps", self.steps, least=1, most=10_000)
        within("microbatches", self.microbatches, least=1, most=1024)
        within("noise", self.noise, least=0, most=0.5)
        if self.style not in STYLES:
            raise InvalidInput(f"style is {self.style!r}: choose one of {', '.join(STYLES)}")
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise InvalidInput(f"name is {self.name!r}, which names no folder: use letters, digits, - and _")
        if self.kind != RANKS:
            raise InvalidInput(f"kind is {self.kind!r}, but this experiment is of the kind {RANKS!r}: leave it out")


class ComposedRanks(NamedTuple):
    """Settings, the model's shape, and the settings as YAML text."""

    settings: RanksSettings
    shape: GptShape
    yaml: str


def register() -> None:
    """Make the types known to Hydra, with those of the groups that this experiment shares with others."""
    config.register()
    ConfigStore.instance().store(group="schema", name="ranks", node=RanksSettings)


ROOT = Root("ranks", register)


def read_ranks_settings(overrides: Sequence[str]) -> ComposedRanks:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(ROOT, overrides)
    found = cast("RanksSettings", settings)
    if not isinstance(found.model, GptConf):
        raise InvalidInput("this experiment trains the byte-level GPT: choose model=gpt-micro or model=gpt")
    model = found.model
    shape = GptShape(
        **{name: getattr(model, name) for name in ("layers", "width", "heads", "context", "batch", "dropout")},
        learning_rate=model.learning_rate,
        seed=model.seed,
    )
    _require_parts(found, shape)
    return ComposedRanks(found, shape, yaml)


def _require_parts(settings: RanksSettings, shape: GptShape) -> None:
    ranks = settings.ranks
    model = settings.model
    if isinstance(model, GptConf) and (model.tied or model.clip != GptConf.clip):
        raise InvalidInput(
            f"model.tied is {model.tied} and model.clip {model.clip:g}, but this experiment ties no weights and clips "
            "no gradients: leave both out"
        )
    if settings.style == "tp" and shape.heads % ranks:
        raise InvalidInput(f"model.heads is {shape.heads}, not a multiple of the {ranks} ranks: choose a multiple")
    if settings.style == "1f1b" and shape.layers < ranks:
        raise InvalidInput(f"model.layers is {shape.layers}, fewer than the {ranks} stages: choose at least {ranks}")
    if settings.style == "1f1b" and settings.microbatches < ranks:
        raise InvalidInput(
            f"microbatches is {settings.microbatches}, fewer than the {ranks} stages: choose at least {ranks}"
        )
