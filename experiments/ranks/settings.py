"""The settings of an experiment with ranks: types, ranges, and the sentence for a value outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, cast

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments import config
from experiments.compose import Root, read_root
from experiments.config import GptConf, HardwareConf, ModelConf, names_a_folder, within
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
    """What ranks are: threads of this process, processes that it starts, or processes that torchrun started."""

    threads = "threads"
    processes = "processes"
    torchrun = "torchrun"


class RankDevice(Enum):
    """What ranks run on: simulated devices, CUDA devices joined by NCCL, or CPUs joined by gloo."""

    sim = "sim"
    cuda = "cuda"
    cpu = "cpu"


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
    device: RankDevice = RankDevice.sim
    noise: float = 0.0
    check: bool = True
    hardware: HardwareConf = MISSING
    model: ModelConf = MISSING
    run_dir: str | None = None
    force: bool = False
    plots: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no run has."""
        within("ranks", self.ranks, least=1, most=64)
        within("steps", self.steps, least=1, most=10_000)
        within("microbatches", self.microbatches, least=1, most=1024)
        within("noise", self.noise, least=0, most=0.5)
        if self.style not in STYLES:
            raise InvalidInput(f"style is {self.style!r}: choose one of {', '.join(STYLES)}")
        names_a_folder(self.name)
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


def plain_gpt(model: ModelConf) -> GptShape:
    """The shape of a GPT that ranks train: raises `InvalidInput` for another model, tied weights or clipping."""
    if not isinstance(model, GptConf):
        raise InvalidInput("this experiment trains the byte-level GPT: choose model=gpt-micro or model=gpt")
    if model.tied or model.clip != GptConf.clip:
        raise InvalidInput(
            f"model.tied is {model.tied} and model.clip {model.clip:g}, but this experiment ties no weights and clips "
            "no gradients: leave both out"
        )
    return GptShape(
        **{name: getattr(model, name) for name in ("layers", "width", "heads", "context", "batch", "dropout")},
        learning_rate=model.learning_rate,
        seed=model.seed,
    )


def read_ranks_settings(overrides: Sequence[str]) -> ComposedRanks:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(ROOT, overrides)
    found = cast("RanksSettings", settings)
    shape = plain_gpt(found.model)
    _require_parts(found, shape)
    _require_device(found, shape)
    return ComposedRanks(found, shape, yaml)


def _require_parts(settings: RanksSettings, shape: GptShape) -> None:
    ranks = settings.ranks
    if settings.style == "tp" and shape.heads % ranks:
        raise InvalidInput(f"model.heads is {shape.heads}, not a multiple of the {ranks} ranks: choose a multiple")
    if settings.style == "1f1b" and shape.layers < ranks:
        raise InvalidInput(f"model.layers is {shape.layers}, fewer than the {ranks} stages: choose at least {ranks}")
    if settings.style == "1f1b" and settings.microbatches < ranks:
        raise InvalidInput(
            f"microbatches is {settings.microbatches}, fewer than the {ranks} stages: choose at least {ranks}"
        )


def _require_device(settings: RanksSettings, shape: GptShape) -> None:
    kind = settings.device.value
    if settings.device is RankDevice.sim:
        return
    if settings.carrier is Carrier.threads:
        raise InvalidInput(
            f"device is {kind}, but carrier is threads, of which only simulated devices have one each: set "
            "carrier=processes or carrier=torchrun"
        )
    if settings.noise:
        raise InvalidInput(f"noise is {settings.noise:g}, but device {kind} has its own: set noise=0, or device=sim")
    if settings.device is RankDevice.cuda and settings.check and shape.dropout:
        raise InvalidInput(
            f"model.dropout is {shape.dropout:g}, and a CUDA device drops others than the CPU that it is compared "
            "with: set model.dropout=0, or check=false"
        )
