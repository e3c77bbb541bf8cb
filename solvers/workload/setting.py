"""What the kernels of a layer are computed from: sizes per device, and how kernels of each sort are made."""

from dataclasses import dataclass, replace

from solvers.ir.hardware import Device, Hardware
from solvers.timeline.collectives import all_gather_us, all_reduce_us, reduce_scatter_us
from solvers.workload.kernels import Kernel, roofline_us
from solvers.workload.links import tensor_group
from solvers.workload.shape import ModelShape, Parallelism, require_divisible

HALF = 2
"""Bytes of an activation, a weight or a gradient in mixed precision."""
MASK = 1
"""Bytes of an element of a dropout mask."""
FULL = 4
"""Bytes of a number in single precision: a router's probabilities, flash attention's log-sum-exp."""


@dataclass(frozen=True)
class Setting:
    """A shape, how it is cut, and where it runs."""

    shape: ModelShape
    parallelism: Parallelism
    cluster: Hardware
    group: tuple[str, ...]

    @classmethod
    def of(cls, shape: ModelShape, parallelism: Parallelism, cluster: Hardware) -> "Setting":
        """The setting of the first stage's devices; raises `InvalidProblem` where shape and cluster do not allow it."""
        require_divisible(shape, parallelism)
        return cls(shape, parallelism, cluster, tensor_group(cluster, parallelism.tensor))

    @property
    def device(self) -> Device:
        """The first device; all of a cluster are alike."""
        return self.cluster.device(self.group[0])

    @property
    def tensor(self) -> int:
        """t."""
        return self.parallelism.tensor

    @property
    def sequence_parallel(self) -> bool:
        """Whether norms and dropouts are cut along the sequence: only with more than one device."""
        return self.parallelism.sequence_parallel and self.tensor > 1

    @property
    def tokens(self) -> int:
        """s·b."""
        return self.shape.sequence * self.parallelism.microbatch

    @property
    def full_bytes(self) -> int:
        """An activation of width h, whole: 2sbh."""
        return HALF * self.tokens * self.shape.hidden

    @property
    def outer_elements(self) -> int:
        """Elements of an activation of width h outside the tensor-parallel regions: sbh, or sbh/t of the sequence."""
        return self.tokens * self.shape.hidden // (self.tensor if self.sequence_parallel else 1)

    @property
    def outer_bytes(self) -> int:
        """Bytes of such an activation."""
        return HALF * self.outer_elements

    def inner_bytes(self, width: int, tokens: int | None = None) -> int:
        """Bytes of an activation of `width` columns cut over the tensor-parallel devices."""
        return HALF * (self.tokens if tokens is None else tokens) * width // self.tensor

    def kernel(
        self, name: str, reads: tuple[str, ...], output: int, read: int, op_class: str = "elementwise", group: str = ""
    ) -> Kernel:
        """A kernel bound by memory: it reads `read` bytes and writes its output."""
        return Kernel(name, reads, output, op_class, traffic=read + output, group=group or None)

    def linear(
        self, name: str, reads: tuple[str, ...], sizes: tuple[int, int, int], group: str = "", weights: int = 1
    ) -> Kernel:
        """A matrix product of `rows` × `inner` with `inner` × `columns`; `weights`: how many such matrices are read."""
        rows, inner, columns = sizes
        output = HALF * rows * columns
        traffic = HALF * (rows * inner + weights * inner * columns) + output
        return Kernel(name, reads, output, "matmul", 2 * rows * inner * columns, traffic, group=group or None)

    def weight_gradient(
        self, name: str, reads: tuple[str, ...], sizes: tuple[int, int, int], group: str = "", weights: int = 1
    ) -> Kernel:
        """The gradient of that product's weights: as much work, and an output that static memory holds."""
        rows, inner, columns = sizes
        traffic = HALF * (rows * inner + rows * columns + weights * inner * columns)
        return Kernel(name, reads, 0, "matmul", 2 * rows * inner * columns, traffic, group=group or None)

    def enter(self, name: str, read: str) -> list[Kernel]:
        """Into a tensor-parallel region: an all-gather along the sequence, or nothing."""
        if not self.sequence_parallel:
            return []
        time = all_gather_us(self.cluster, self.group, self.full_bytes)
        return [Kernel(f"all-gather {name}", (read,), self.full_bytes, "collective", comm_us=time)]

    def enter_again(self, name: str, read: str, beside: Kernel | None) -> list[Kernel]:
        """The gathered input once more, for the gradient of the weights: only what `beside` does not hide counts.

        Sequence parallelism keeps a device's own part and gathers it again while the input's gradient is computed
        (Korthikanti et al. 2022, §4.2.2).
        """
        hidden = 0.0 if beside is None else roofline_us(self.device, beside.op_class, beside.flops, beside.traffic)
        return [
            replace(kernel, name=f"{kernel.name} again", comm_us=max(0.0, (kernel.comm_us or 0.0) - hidden))
            for kernel in self.enter(name, read)
        ]

    def leave(self, name: str, read: str) -> list[Kernel]:
        """Out of a tensor-parallel region: an all-reduce, with sequence parallelism a reduce-scatter, or nothing."""
        if self.tensor == 1:
            return []
        if self.sequence_parallel:
            time = reduce_scatter_us(self.cluster, self.group, self.full_bytes)
            return [Kernel(f"reduce-scatter {name}", (read,), self.outer_bytes, "collective", comm_us=time)]
        time = all_reduce_us(self.cluster, self.group, self.full_bytes)
        return [Kernel(f"all-reduce {name}", (read,), self.full_bytes, "collective", comm_us=time)]
