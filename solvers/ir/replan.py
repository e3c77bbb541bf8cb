"""The `replan` kind: the parallel plan after a failure (formats.md 7; Chameleon, formulas reconstructed)."""

from math import gcd
from typing import ClassVar, Literal

import msgspec

from solvers.ir.fields import LARGEST, Bytes, Count, Index, Microseconds, Rate, Record, require, require_unique
from solvers.ir.problem import Plan, Problem

NodeId = Index
MOST = {"nodes": 100_000, "microbatches": 100_000, "layers": 1_000}
"""Larger counts are refused as typing errors: no solver is made for them."""
MOST_LOAD = 2**56
"""The most that (bytes of a model) × (numerator of the ratio of the two rates) may be: solvers add in 64 bits."""


class CurrentPipeline(Record, frozen=True, kw_only=True):
    """A running pipeline: layers per stage, the node of each stage, and its microbatches per step."""

    layers: tuple[Count, ...]
    nodes: tuple[NodeId, ...]
    microbatches: Count

    def __post_init__(self) -> None:
        """Refuse a pipeline whose stages and nodes differ in number."""
        require(
            len(self.layers) == len(self.nodes),
            f"a current pipeline has {len(self.layers)} stages but {len(self.nodes)} nodes: give one node a stage",
        )


class CurrentState(Record, frozen=True, kw_only=True):
    """What ran before the failure, and which of its nodes failed (an idle node that fails is just no longer alive)."""

    pipelines: tuple[CurrentPipeline, ...]
    failed: tuple[NodeId, ...]

    def __post_init__(self) -> None:
        """Refuse no pipelines, a node in two places, a failure told twice, and one of a node that is in no pipeline."""
        require(bool(self.pipelines), "pipelines is empty: list those that ran, or drop current")
        nodes = [node for pipeline in self.pipelines for node in pipeline.nodes]
        require_unique(nodes, "node")
        require_unique(self.failed, "failed node")
        require(
            len(self.failed) <= len(nodes),
            f"failed names {len(self.failed)} nodes, but only {len(nodes)} ran: name those that failed",
        )
        ran = set(nodes)
        for node in self.failed:
            require(
                node in ran,
                f"failed names node {node}, which stands in no current pipeline: correct it, or leave it out "
                "and count nodes without it if it was idle",
            )


class Hosts(Record, frozen=True, kw_only=True):
    """Each host has `nodes` consecutive node ids; its nodes send to each other at `bytes_per_s`."""

    nodes: Count
    bytes_per_s: Rate


class ReplanProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster, a model and perhaps a failure; per-layer times are per microbatch (F1-F8: solvers/replan/README.md).

    `layer_sync_us` is the all-reduce of one layer's gradients: where there is more than one pipeline, a step ends with
    `sync_us` and as many of them as the fullest stage has layers. `sharded_optimizer`: each pipeline's node holds
    another shard of its layers' optimizer states, so that those of a failed node have no replica. `hosts`: nodes i·k …
    (i+1)·k − 1 stand on one host and are faster there than `bytes_per_s`; idle nodes are the smallest ids not listed.
    """

    nodes: Count
    microbatches: Count
    layers: Count
    forward_us: Microseconds
    backward_us: Microseconds
    first_extra_us: tuple[Microseconds, Microseconds]
    last_extra_us: tuple[Microseconds, Microseconds]
    p2p_us: Microseconds
    sync_us: Microseconds
    memory_bytes: Bytes
    layer_static_bytes: Bytes
    layer_activation_bytes: Bytes
    first_static_bytes: Bytes
    last_static_bytes: Bytes
    max_depth: Count
    data_parallel: Count | None = None
    current: CurrentState | None = None
    restart_us: Microseconds | None = None
    bytes_per_s: Rate | None = None
    expected_interval_us: Microseconds | None = None
    layer_sync_us: Microseconds = 0
    sharded_optimizer: bool = False
    hosts: Hosts | None = None
    KIND: ClassVar[str] = "replan"

    def __post_init__(self) -> None:
        """Refuse absurd sizes, a current state without its rates, and one that contradicts layers, nodes or degree."""
        self._check_sizes()
        self._check_hosts()
        beside = (self.restart_us, self.bytes_per_s, self.expected_interval_us)
        if self.current is None:
            require(
                beside == (None, None, None),
                "restart_us, bytes_per_s and expected_interval_us need current: add it or drop them",
            )
            return
        require(
            None not in beside, "current needs restart_us, bytes_per_s and expected_interval_us beside it: add them"
        )
        self._check_current(self.current)

    def _check_sizes(self) -> None:
        """Counts that solvers can bear; step times and stage memory that every JSON reader holds exactly."""
        for name, most in MOST.items():
            count = getattr(self, name)
            require(count <= most, f"{name} is {count}, but at most {most} can be planned: correct it")
        if self.data_parallel is not None:
            require(
                self.data_parallel <= self.microbatches,
                f"data_parallel is {self.data_parallel}, more than the {self.microbatches} microbatches of a step: "
                "every pipeline needs one",
            )
        depth = min(self.max_depth, self.layers)
        batch = self.layers * (self.forward_us + self.backward_us) + sum(self.first_extra_us) + sum(self.last_extra_us)
        step = self.microbatches * (batch + 2 * depth * self.p2p_us) + self.sync_us + self.layers * self.layer_sync_us
        require(step <= LARGEST, f"a step may take {step} us, beyond the {LARGEST} that files hold: correct the times")
        held = self.layers * (self.layer_static_bytes + min(depth, self.microbatches) * self.layer_activation_bytes)
        held += self.first_static_bytes + self.last_static_bytes
        require(
            held <= LARGEST, f"a stage may hold {held} bytes, beyond the {LARGEST} that files hold: correct the sizes"
        )

    def _check_hosts(self) -> None:
        if self.hosts is None:
            return
        within, between = self.hosts.bytes_per_s, self.bytes_per_s or 0
        require(between > 0, "hosts needs current and bytes_per_s, between hosts: add them or drop it")
        require(
            within >= between,
            f"hosts.bytes_per_s is {within}, below bytes_per_s {between} between hosts: "
            "a host is at least as fast inside",
        )
        share, other = within // gcd(within, between), between // gcd(within, between)
        held = self.layers * self.layer_static_bytes + self.first_static_bytes + self.last_static_bytes
        require(
            share * held <= MOST_LOAD,
            f"hosts.bytes_per_s {within} and bytes_per_s {between} are as {share} to {other}, but {held} bytes of "
            f"states allow at most {MOST_LOAD // max(held, 1)} for the larger number: round both, say to three digits",
        )

    def _check_current(self, current: CurrentState) -> None:
        degree = len(current.pipelines)
        require(
            self.data_parallel in (None, degree),
            f"data_parallel is {self.data_parallel}, but current lists {degree} pipelines: drop it or correct it",
        )
        for number, pipeline in enumerate(current.pipelines):
            total = sum(pipeline.layers)
            require(
                total == self.layers,
                f"current.pipelines[{number}] holds {total} of {self.layers} layers: every layer once",
            )
        nodes = {node for pipeline in current.pipelines for node in pipeline.nodes}
        alive = len(nodes - set(current.failed))
        require(
            alive <= self.nodes,
            f"current has {alive} nodes alive, more than nodes = {self.nodes}: count the nodes alive",
        )


class NewPipeline(Record, frozen=True, kw_only=True):
    """A planned pipeline: layers per stage, microbatches, and the node of each stage where mapped."""

    layers: tuple[Count, ...]
    microbatches: Count
    nodes: tuple[NodeId, ...] | None


class Transfer(Record, frozen=True, kw_only=True):
    """A layer's states travel from one node to another."""

    layer: Index
    source: NodeId = msgspec.field(name="from")
    target: NodeId = msgspec.field(name="to")


class ReplanPlan(Plan, frozen=True, kw_only=True):
    """`dynamic` re-plans the parallelism; `reroute` keeps it, lists no pipelines, and shares the lost microbatches."""

    policy: Literal["dynamic", "reroute"]
    pipelines: tuple[NewPipeline, ...]
    transfers: tuple[Transfer, ...] | None
