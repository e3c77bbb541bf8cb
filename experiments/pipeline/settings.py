"""The settings of a pipeline experiment: types, ranges, and the sentence for a value outside."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast, get_args

import msgspec
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments.compose import Root, read_root
from experiments.config import names_a_folder
from experiments.hardware import read_hardware
from experiments.kinds import PIPELINE
from experiments.shapes import read_shape
from solvers.ir import InvalidInput
from solvers.ir.names import unknown
from solvers.partition.pipeline import Pipeline, machine_split
from solvers.partition.policies import POLICIES, Cut, System
from solvers.timeline.pipeline.inputs import Hide
from solvers.workload import Parallelism, p2p_us

GIB = 2**30

# These classes are not frozen: Hydra fills their fields one override at a time (experiments/config.py).


@dataclass
class PipelineSettings:
    """One experiment. None for `tensor` and `pipeline` is what the cluster's machines give (Lynx §7.5).

    `systems` maps a name to POLICY/CUT/HIDE: a policy of `POLICIES`, a `Cut` (else balanced), a `Hide` (else none).
    """

    kind: str = PIPELINE
    name: str = "pipeline"
    shape: str = MISSING
    cluster: str = MISSING
    tensor: int | None = None
    pipeline: int | None = None
    microbatch: int = 8
    microbatches: int = 16
    sequence: int | None = None
    sequence_parallel: bool = False
    memory_gib: float | None = None
    systems: dict[str, str] = field(default_factory=dict)
    detail: str | None = None
    run_dir: str | None = None
    force: bool = False
    plots: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no pipeline has."""
        for name, most in (
            ("tensor", 1024),
            ("pipeline", 256),
            ("microbatch", 65_536),
            ("microbatches", 4096),
            ("sequence", 2**20),
        ):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise InvalidInput(f"{name} is {value}, outside 1…{most}: choose a value inside")
        memory = self.memory_gib
        if memory is not None and not (math.isfinite(memory) and 0 < memory <= 2**20):
            raise InvalidInput(f"memory_gib is {memory}, outside 0…{2**20}: choose a value inside")
        names_a_folder(self.name)
        if self.kind != PIPELINE:
            raise InvalidInput(f"kind is {self.kind!r}, but this experiment is of the kind {PIPELINE!r}: leave it out")


class ComposedPipeline(NamedTuple):
    """Settings, and the same as YAML text."""

    settings: PipelineSettings
    yaml: str


def register() -> None:
    """Make the types known to Hydra."""
    ConfigStore.instance().store(group="schema", name="pipeline", node=PipelineSettings)


ROOT = Root("pipeline", register)


def read_pipeline_settings(overrides: Sequence[str]) -> ComposedPipeline:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(ROOT, overrides)
    return ComposedPipeline(cast("PipelineSettings", settings), yaml)


def make_pipeline(settings: PipelineSettings) -> Pipeline:
    """The model on the cluster; raises `InvalidInput` for names that do not exist and splits that do not work."""
    machine, shape = read_hardware(settings.cluster), read_shape(settings.shape)
    if settings.sequence is not None:
        shape = msgspec.structs.replace(shape, sequence=settings.sequence)
    split = machine_split(machine)
    cut = Parallelism(
        tensor=settings.tensor or split["tensor"],
        pipeline=settings.pipeline or split["pipeline"],
        sequence_parallel=settings.sequence_parallel,
        microbatch=settings.microbatch,
        microbatches=settings.microbatches,
    )
    memory = settings.memory_gib
    budget = machine.device().memory_bytes if memory is None else int(memory * GIB)
    pipeline = Pipeline(shape, cut, machine, budget)
    require_split(pipeline)
    return pipeline


def require_split(pipeline: Pipeline) -> None:
    """Raise `InvalidInput` where the split does not work on the cluster, before anything is written."""
    _ = pipeline.costs, pipeline.extras, p2p_us(pipeline.shape, pipeline.parallelism, pipeline.machine)


def make_systems(settings: PipelineSettings) -> dict[str, System]:
    """The systems to compare, by name; raises `InvalidInput` where there is none, or `detail` names none."""
    if not settings.systems:
        raise InvalidInput("systems is empty: name at least one, as in +systems.mine=heu/dp/cooldown")
    if settings.detail is not None and settings.detail not in settings.systems:
        raise unknown("system", settings.detail, settings.systems)
    return {name: read_system(name, text) for name, text in settings.systems.items()}


def read_system(name: str, text: str) -> System:
    """The system that POLICY/CUT/HIDE names; raises `InvalidInput` naming the nearest word."""
    words = text.split("/")
    if len(words) > 3:
        raise InvalidInput(f"systems.{name} is {text!r}: write POLICY/CUT/HIDE, as in heu/dp/cooldown")
    policy, cut, hide = [*words, *("balanced", "none")[len(words) - 1 :]]
    for what, word, known in (
        ("policy", policy, tuple(POLICIES)),
        ("cut", cut, get_args(Cut)),
        ("hide", hide, get_args(Hide)),
    ):
        if word not in known:
            raise unknown(f"{what} of systems.{name}", word, known)
    return System(policy, cast("Cut", cut), cast("Hide", hide))
