"""The `swap` kind: which activations leave the device, and when each returns (design §4, SmartSwap §4)."""

from typing import ClassVar

from solvers.ir.fields import (
    Bytes,
    Index,
    Microseconds,
    PositiveMicroseconds,
    Rate,
    Record,
    TensorId,
    require,
    require_index,
    require_unique,
)
from solvers.ir.graph import Phase


class SwapOp(Record, frozen=True, kw_only=True):
    """An operator: its time on the compute lane and its phase."""

    name: str
    time_us: PositiveMicroseconds
    phase: Phase


class SwapTensor(Record, frozen=True, kw_only=True):
    """A tensor that may be absent strictly between its last forward and its first backward use (op indices)."""

    id: TensorId
    bytes: Bytes
    last_forward_use: Index
    first_backward_use: Index


class SwapLink(Record, frozen=True, kw_only=True):
    """The host link, full duplex: one lane out, one lane in."""

    out_bytes_per_s: Rate
    in_bytes_per_s: Rate
    latency_us: Microseconds

    def out_us(self, size_bytes: int) -> int:
        """Time of one swap-out."""
        return self.latency_us + -(-size_bytes * 1_000_000 // self.out_bytes_per_s)

    def in_us(self, size_bytes: int) -> int:
        """Time of one swap-in."""
        return self.latency_us + -(-size_bytes * 1_000_000 // self.in_bytes_per_s)


class SwapProblem(Record, frozen=True, kw_only=True):
    """Keep the step within `budget_bytes` by swapping; `memory_bytes[j]` is in use during op j with nothing swapped."""

    name: str
    budget_bytes: Bytes
    ops: tuple[SwapOp, ...]
    memory_bytes: tuple[Bytes, ...]
    tensors: tuple[SwapTensor, ...]
    link: SwapLink
    KIND: ClassVar[str] = "swap"

    def __post_init__(self) -> None:
        """Refuse lists of unequal length, repeated ids, and uses out of order or range."""
        count = len(self.ops)
        require(count > 0, "ops is empty: a swap problem needs at least one op")
        require(
            len(self.memory_bytes) == count,
            f"memory_bytes has {len(self.memory_bytes)} entries for {count} ops: give one each",
        )
        require_unique([tensor.id for tensor in self.tensors], "tensor")
        for number, tensor in enumerate(self.tensors):
            first, last = tensor.last_forward_use, tensor.first_backward_use
            require_index(last, count, f"tensors[{number}].first_backward_use", "ops")
            require(
                first < last,
                f"tensors[{number}].last_forward_use is {first}, not before first_backward_use {last}: correct them",
            )


class Swap(Record, frozen=True, kw_only=True):
    """One tensor leaves after its last forward use, and its swap-in is issued right before op `swap_in_at`."""

    tensor: TensorId
    swap_in_at: Index


class SwapPlan(Record, frozen=True, kw_only=True):
    """The decision; the list order breaks ties in the FIFO lanes, so it is part of the decision."""

    swaps: tuple[Swap, ...]
