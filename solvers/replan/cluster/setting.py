"""What a simulated cluster is: its model, its size, how often devices fail, and what stopping and copying cost."""

from dataclasses import dataclass
from typing import Literal

from solvers.ir import InvalidInput, ReplanProblem

MICROSECONDS = 1_000_000
HOUR_US = 3600 * MICROSECONDS


def _need(condition: bool, sentence: str) -> None:
    if not condition:
        raise InvalidInput(sentence)


@dataclass(frozen=True)
class Checkpoints:
    """Copies of the training state outside the nodes.

    One is written after the first step that brings the training time since the last one to `interval_us` (0: after
    every step) and stops training for `save_us`. Going back to it takes `restore_us`, and the work since is lost.
    """

    interval_us: int
    save_us: int = 0
    restore_us: int = 0

    def __post_init__(self) -> None:
        for name in ("interval_us", "save_us", "restore_us"):
            value = getattr(self, name)
            _need(value >= 0, f"checkpoints.{name} is {value}, below 0: give at least 0")


@dataclass(frozen=True)
class Repair:
    """How long a failed node is away: `mean_s` exactly, or exponentially distributed with that mean."""

    mean_s: float
    law: Literal["exponential", "fixed"] = "exponential"

    def __post_init__(self) -> None:
        _need(self.mean_s > 0, f"repair.mean_s is {self.mean_s}, not above 0: give seconds, or no repair")
        _need(
            self.law in ("exponential", "fixed"),
            f"repair.law is {self.law!r}: choose exponential or fixed",
        )


@dataclass(frozen=True)
class ClusterSetting:
    """A cluster and a training run on it, as every policy meets it.

    `problem` holds the model and the whole cluster (`nodes`: all of them, `current` None); a *node* is a group of
    `tensor_parallel` devices that fail together. Training begins as `data_parallel` pipelines of `depth` stages; nodes
    beyond are spares. `failures_per_device_hour` is the rate of each living device. A transition takes `restart_us`
    and its transfers at `bytes_per_s` (None: no time of their own). `expected_interval_us` is what policies take for
    τ in F2; None: 1 / (rate · living devices), our assumption (README; the paper only says "constant").
    """

    problem: ReplanProblem
    depth: int
    data_parallel: int
    duration_us: int
    failures_per_device_hour: float
    tensor_parallel: int = 1
    repair: Repair | None = None
    restart_us: int = 0
    bytes_per_s: int | None = None
    expected_interval_us: int | None = None

    def __post_init__(self) -> None:
        problem = self.problem
        _need(problem.current is None, "the setting's problem has a current state: a cluster starts whole, so drop it")
        _need(
            problem.forward_us + problem.backward_us >= 1,
            "a layer takes 0 us forward and backward, so that a step takes no time: give forward_us or backward_us",
        )
        for name in ("depth", "data_parallel", "duration_us", "tensor_parallel"):
            value = getattr(self, name)
            _need(value >= 1, f"{name} is {value}, below 1: give at least 1")
        grid = self.depth * self.data_parallel
        _need(
            grid <= problem.nodes,
            f"depth {self.depth} x data_parallel {self.data_parallel} needs {grid} nodes, but the cluster has "
            f"{problem.nodes}: lower one of them",
        )
        _need(
            self.depth <= min(problem.layers, problem.max_depth),
            f"depth is {self.depth}, above {min(problem.layers, problem.max_depth)} (layers, max_depth): lower it",
        )
        _need(
            self.data_parallel <= problem.microbatches,
            f"data_parallel is {self.data_parallel}, above the {problem.microbatches} microbatches of a step: lower it",
        )
        rate = self.failures_per_device_hour
        _need(0 <= rate < float("inf"), f"failures_per_device_hour is {rate}: give a number of at least 0")
        _need(self.restart_us >= 0, f"restart_us is {self.restart_us}, below 0: give at least 0")
        for name in ("bytes_per_s", "expected_interval_us"):
            value = getattr(self, name)
            _need(value is None or value >= 1, f"{name} is {value}, below 1: give at least 1, or leave it out")

    @property
    def failures_per_node_hour(self) -> float:
        """A node fails when any of its devices does."""
        return self.failures_per_device_hour * self.tensor_parallel

    def interval_us(self, alive: int) -> int | None:
        """τ of F2 with this number of nodes alive; None: nothing is expected to fail."""
        if self.expected_interval_us is not None:
            return self.expected_interval_us
        rate = self.failures_per_node_hour * alive
        return None if rate == 0 else max(1, round(HOUR_US / rate))
