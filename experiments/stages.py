"""A pipeline stage of a named model on a named cluster: what `bayplan make --shape` makes problems from."""

from dataclasses import dataclass
from functools import cached_property

from solvers.ir.fields import require
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.workload import (
    LayerCosts,
    ModelShape,
    Parallelism,
    StageExtra,
    inflight,
    megatron_layer,
    stage_extras,
    stage_graph,
    static_bytes,
)


@dataclass(frozen=True)
class Stage:
    """Stage `index` of a shape that is cut by `parallelism`; `layers` of its layers, an even share unless given."""

    shape: ModelShape
    parallelism: Parallelism
    cluster: Hardware
    index: int = 0
    given_layers: int | None = None
    group_small: bool = True

    @property
    def layers(self) -> int:
        """How many layers the stage has: given, or the even share (the first stages take what is left over)."""
        count, depth = self.shape.layers, self.parallelism.pipeline
        require(
            depth <= count,
            f"{self.shape.name} has {count} layers, too few for {depth} stages: choose a shorter pipeline",
        )
        most = count - depth + 1
        if self.given_layers is not None:
            require(
                self.given_layers <= most,
                f"layers is {self.given_layers}, but of the {count} layers of {self.shape.name} a stage of {depth} "
                f"can have {most}: choose at most that",
            )
            return self.given_layers
        share, left = divmod(count, depth)
        return share + (self.index < left)

    @cached_property
    def costs(self) -> LayerCosts:
        """One of its layers."""
        return megatron_layer(self.shape, self.parallelism, self.cluster, group_small=self.group_small)

    @cached_property
    def extras(self) -> tuple[StageExtra, ...]:
        """Embedding and head, where the stage has them."""
        return stage_extras(self.shape, self.parallelism, self.cluster, self.index)

    @property
    def is_last(self) -> bool:
        """Whether its backward pass follows its forward pass at once."""
        return self.index == self.parallelism.pipeline - 1

    @property
    def inflight(self) -> int:
        """Microbatches that it holds at its peak."""
        return inflight(self.parallelism, self.index)

    @property
    def fixed_bytes(self) -> int:
        """What no decision changes: states, and what embedding and head keep of all microbatches in flight."""
        states = static_bytes(self.shape, self.parallelism, self.index, self.layers)
        return states + self.inflight * sum(extra.activation_bytes for extra in self.extras)

    @property
    def unlimited_bytes(self) -> int:
        """Memory between the passes where nothing is recomputed."""
        return self.fixed_bytes + self.inflight * self.layers * self.costs.kept_bytes

    @property
    def graph(self) -> OpGraph:
        """One microbatch's forward and backward pass, with the states."""
        by_name = {extra.name: extra for extra in self.extras}
        return stage_graph(
            self.costs,
            self.layers,
            embedding=by_name.get("embedding"),
            head=by_name.get("head"),
            static_bytes=static_bytes(self.shape, self.parallelism, self.index, self.layers),
        )
