"""The shipped replan instances: Llama-2-like models by a roofline, and failures; nothing in them was measured.

A layer has 4·h² + 3·h·f + 2·h parameters of 16 bytes (parameter, gradient, Adam). Its forward pass of one sequence
takes 2·parameters·tokens + 4·tokens²·h operations, its backward pass twice that, and it keeps 34 bytes for each token
and feature (flash attention assumed). Tensor parallelism divides all of it; a node is a tensor-parallel group.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from solvers.ir.replan import CurrentPipeline, CurrentState, ReplanProblem

FLOPS_PER_S = 156 * 10**12
"""Half of an Ascend 910B's peak, assumed."""
BYTES_PER_S = 25 * 10**9
"""A device's link to other nodes, assumed."""
MEMORY_BYTES = 64 << 30
STATE_BYTES, GRADIENT_BYTES, NUMBER_BYTES, KEPT_BYTES = 16, 2, 2, 34
RESTART_US = 1_930_000
"""The paper's recovery without its transfer: 11.2 s, of which 3.0 s are 32.35 % of the transfer (§V-C) [R]."""
HOURLY_FAILURES = 10
"""Devices of a hundred that fail in an hour (§V-B)."""
HOUR_US = 3600 * 10**6


@dataclass(frozen=True, kw_only=True)
class Model:
    """Sizes of a Llama-like model, and how many devices share a layer."""

    layers: int
    hidden: int = 4096
    ffn: int = 11008
    vocab: int = 32000
    tokens: int = 4096
    tensor: int = 1

    @property
    def parameters(self) -> int:
        """Parameters of a layer on one device."""
        return -(-(self.hidden * (4 * self.hidden + 3 * self.ffn + 2)) // self.tensor)

    @property
    def table(self) -> int:
        """Entries of the word table, or of the head, on one device."""
        return -(-self.vocab * self.hidden // self.tensor)

    def us(self, operations: int) -> int:
        """Time of that many operations of a layer, shared by its devices."""
        return round(operations * 10**6 / (FLOPS_PER_S * self.tensor))

    @property
    def forward_us(self) -> int:
        """A layer's forward pass of one sequence."""
        products = 2 * self.parameters * self.tensor * self.tokens
        return self.us(products + 4 * self.tokens**2 * self.hidden)

    @property
    def head_us(self) -> int:
        """The head's forward pass of one sequence."""
        return self.us(2 * self.vocab * self.hidden * self.tokens)

    def problem(self, name: str, depth: int, data: int, microbatches: int) -> ReplanProblem:
        """`data` pipelines of `depth` nodes before any failure; depths up to twice that may be planned."""
        moved = GRADIENT_BYTES * self.parameters * 2 * (data - 1)
        activation = self.tokens * self.hidden
        return ReplanProblem(
            name=name,
            nodes=depth * data,
            microbatches=microbatches,
            layers=self.layers,
            forward_us=self.forward_us,
            backward_us=2 * self.forward_us,
            first_extra_us=(0, 0),
            last_extra_us=(self.head_us, 2 * self.head_us),
            p2p_us=-(-NUMBER_BYTES * activation * 10**6 // BYTES_PER_S),
            sync_us=0,
            memory_bytes=MEMORY_BYTES,
            layer_static_bytes=STATE_BYTES * self.parameters,
            layer_activation_bytes=KEPT_BYTES * activation // self.tensor,
            first_static_bytes=STATE_BYTES * self.table,
            last_static_bytes=STATE_BYTES * self.table,
            max_depth=min(self.layers, 2 * depth),
            data_parallel=data,
            layer_sync_us=-(-moved * 10**6 // (data * BYTES_PER_S)),
        )

    def after(self, name: str, depth: int, data: int, microbatches: int, failed: tuple[int, ...]) -> ReplanProblem:
        """The same once these nodes have failed, where the node of stage s in pipeline d is number d·depth + s."""
        problem = self.problem(name, depth, data, microbatches)
        alive = depth * data - len(failed)
        return msgspec.structs.replace(
            problem,
            nodes=alive,
            current=_current(self.layers, depth, data, microbatches, failed),
            restart_us=RESTART_US,
            bytes_per_s=BYTES_PER_S,
            expected_interval_us=100 * HOUR_US // (HOURLY_FAILURES * alive * self.tensor),
        )


def _current(layers: int, depth: int, data: int, microbatches: int, failed: tuple[int, ...]) -> CurrentState:
    """Alike pipelines; layers that are left over go to the first stages."""
    share, left = divmod(layers, depth)
    stages = tuple(share + (stage < left) for stage in range(depth))
    pipelines = tuple(
        CurrentPipeline(
            layers=stages,
            nodes=tuple(range(number * depth, (number + 1) * depth)),
            microbatches=microbatches // data,
        )
        for number in range(data)
    )
    return CurrentState(pipelines=pipelines, failed=failed)


def figure_3() -> ReplanProblem:
    """Figure 3: three pipelines of three stages, nine layers, node 8 lost; a layer's states take a second to send."""
    model = Model(layers=9)
    problem = model.after("replan-figure-3", 3, 3, 12, (8,))
    return msgspec.structs.replace(
        problem,
        forward_us=10_000,
        backward_us=20_000,
        last_extra_us=(0, 0),
        p2p_us=0,
        layer_static_bytes=10**9,
        layer_activation_bytes=10**8,
        first_static_bytes=0,
        last_static_bytes=0,
        layer_sync_us=4_000,
        bytes_per_s=10**9,
    )


def eight_to_seven() -> ReplanProblem:
    """Figure 9, 8 devices: Llama-2 7B as two pipelines of four stages; the last node is lost."""
    return Model(layers=32).after("replan-8-to-7", 4, 2, 64, (7,))


def short_pipelines() -> ReplanProblem:
    """Figures 11 and 13: 16 of its layers as four pipelines of two stages; one lost node leaves depths 2, 2 and 3."""
    return Model(layers=16).after("replan-8-to-7-short", 2, 4, 64, (7,))


def tensor_groups() -> ReplanProblem:
    """Figure 9, 32 devices: (PP 2, DP 2, TP 8); one lost device loses its group, a quarter of the cluster."""
    return Model(layers=32, tensor=8).after("replan-32-to-24-tp8", 2, 2, 64, (3,))


def large_cluster() -> ReplanProblem:
    """2,048 nodes, 128 pipelines of 16, 80 layers and a head of a vocabulary of 64,000; seven nodes are lost."""
    lost = tuple(293 * number for number in range(7))
    problem = Model(layers=80, vocab=64_000).after("replan-2048", 16, 128, 2048, lost)
    return msgspec.structs.replace(problem, expected_interval_us=6 * HOUR_US)  # two a day on 1,000 machines (§II-B)


INSTANCES: dict[str, Callable[[], ReplanProblem]] = {
    "replan-figure-3": figure_3,
    "replan-8-to-7": eight_to_seven,
    "replan-8-to-7-short": short_pipelines,
    "replan-32-to-24-tp8": tensor_groups,
    "replan-2048": large_cluster,
}
"""What is shipped in `experiments/instances`, by the name of its file."""
