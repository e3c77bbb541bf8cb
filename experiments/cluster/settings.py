"""The settings of a cluster experiment: types, ranges, and the sentence for a value outside."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple, cast

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments.cluster.policies import PolicyConf
from experiments.compose import Root, read_root
from experiments.config import names_a_folder, within
from experiments.hardware import read_hardware
from experiments.kinds import CLUSTER
from experiments.shapes import read_shape
from solvers.ir import InvalidInput, InvalidProblem
from solvers.replan.make import Trained

# These classes are not frozen: Hydra fills their fields one override at a time (experiments/config.py).


class Start(Enum):
    """Which nodes are there when a trace begins."""

    full = "full"
    empty = "empty"


@dataclass
class ClusterSettings:
    """One experiment: a model on a cluster, and what is asked of it.

    With `seeds` above 0 the policies train through `seeds` lives of the cluster (or through the trace, once, which
    `start`s with all nodes or with none); `spares` are nodes beyond the grid, idle until one is needed. With
    `lost` above 0 the planners plan after `lost` failures, for each of `draws` choices of the failed nodes. `grid` is
    PIPELINESxDEPTH or PIPELINESxDEPTHxLAYERS before any failure, a node being `tensor` devices that fail as one;
    `microbatches` are those of a pipeline then. `paper` holds a paper's gains over policies, drawn beside ours.
    """

    kind: str = CLUSTER
    name: str = "cluster"
    shape: str = MISSING
    cluster: str = MISSING
    gb_per_s: float = 25.0
    tensor: int = 1
    grid: str = MISSING
    microbatches: int = 8
    sequence: int | None = None
    flash: bool = True
    head: bool = True
    restart_s: float = 8.2
    seeds: int = 0
    first_seed: int = 0
    hours: float = 9.0
    rate_per_h: float = 0.1
    repair_h: float | None = None
    trace: str | None = None
    start: Start = Start.full
    spares: int = 0
    policies: dict[str, PolicyConf] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)
    lost: int = 0
    draws: int = 1
    workers: int = 2
    run_dir: str | None = None
    force: bool = False
    plots: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no cluster has."""
        for name, least, most in (
            ("gb_per_s", 1e-3, 1e5),
            ("tensor", 1, 1024),
            ("microbatches", 1, 4096),
            ("sequence", 1, 2**20),
            ("restart_s", 0, 1e6),
            ("seeds", 0, 100_000),
            ("first_seed", 0, 2**31 - 1),
            ("hours", 1e-3, 1e5),
            ("rate_per_h", 1e-9, 1e3),
            ("repair_h", 1e-3, 1e5),
            ("lost", 0, 100_000),
            ("spares", 0, 100_000),
            ("draws", 1, 1000),
            ("workers", 1, 256),
        ):
            within(name, getattr(self, name), least=least, most=most)
        for policy, gain in self.paper.items():
            within(f"paper.{policy}", gain, least=1e-3, most=1e3)
        names_a_folder(self.name)
        if self.kind != CLUSTER:
            raise InvalidInput(f"kind is {self.kind!r}, but this experiment is of the kind {CLUSTER!r}: leave it out")

    @property
    def lives(self) -> bool:
        """Whether policies train through failures."""
        return bool(self.seeds) or self.trace is not None


class ComposedCluster(NamedTuple):
    """Settings, and the same as YAML text."""

    settings: ClusterSettings
    yaml: str


class Grid(NamedTuple):
    """Pipelines, the stages of each, and the model's layers; None for the shape's."""

    data: int
    depth: int
    layers: int | None

    @property
    def nodes(self) -> int:
        """All nodes."""
        return self.data * self.depth


def register() -> None:
    """Make the types known to Hydra."""
    ConfigStore.instance().store(group="schema", name="cluster", node=ClusterSettings)


ROOT = Root("cluster", register)


def read_cluster_settings(overrides: Sequence[str]) -> ComposedCluster:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(ROOT, overrides)
    return ComposedCluster(cast("ClusterSettings", settings), yaml)


def read_grid_text(text: str) -> Grid:
    """`8x4` is eight pipelines of four stages, `8x4x80` the same for 80 layers; raises `InvalidInput` else."""
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})(?:x([1-9]\d{0,3}))?", text)
    if found is None:
        raise InvalidInput(f"grid is {text!r}: write PIPELINESxDEPTH or PIPELINESxDEPTHxLAYERS, as in 8x4 or 128x16x80")
    return Grid(int(found[1]), int(found[2]), None if found[3] is None else int(found[3]))


def make_grid(settings: ClusterSettings) -> Grid:
    """The grid before any failure, judged against what is asked of it."""
    grid = read_grid_text(settings.grid)
    if settings.lost >= grid.nodes:
        raise InvalidProblem(f"lost is {settings.lost}, but the grid has {grid.nodes} nodes: leave at least one alive")
    if not settings.seeds and not settings.lost and settings.trace is None:
        raise InvalidInput("nothing is asked: give seeds=N to train through failures, or lost=N to plan after them")
    if settings.trace is not None and Path(settings.trace).is_dir():
        raise InvalidInput(f"the trace {settings.trace} is a folder: give the path of a CSV file, or leave trace out")
    if settings.trace is not None and not Path(settings.trace).is_file():
        raise InvalidInput(f"there is no trace {settings.trace}: give the path of a CSV file, or leave trace out")
    if settings.start is Start.empty and settings.trace is None:
        raise InvalidInput("start is empty, but no node would ever come: give trace=FILE, or start=full")
    if settings.spares and not settings.lives:
        raise InvalidInput(f"spares is {settings.spares}, but nothing trains through failures: give seeds=N or trace")
    return grid


def make_model(settings: ClusterSettings) -> Trained:
    """The model on the cluster; raises `InvalidInput` for names that do not exist."""
    return Trained(
        shape=read_shape(settings.shape),
        machine=read_hardware(settings.cluster),
        bytes_per_s=round(settings.gb_per_s * 10**9),
        tensor=settings.tensor,
        head=settings.head,
        layers=read_grid_text(settings.grid).layers,
        sequence=settings.sequence,
        flash=settings.flash,
    )
