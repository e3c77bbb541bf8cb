"""The `swap` kind: which activations leave the device, and when each returns (formats.md 3; SmartSwap §4)."""

from typing import ClassVar, Literal, TypeAlias

from solvers.ir.fields import (
    Bytes,
    Index,
    Microseconds,
    Nanoseconds,
    Rate,
    Record,
    TensorId,
    require,
    require_index,
    require_step,
    require_unique,
)
from solvers.ir.graph import Phase
from solvers.ir.problem import Plan, Problem

HostRounding: TypeAlias = Literal["exact", "power-of-two"]
"""What a tensor takes of page-locked host memory: its bytes, or a block of the next power of two that only tensors of
the same block size use again, as PyTorch's own host allocator hands them out."""


class SwapOp(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An operator: its time on the compute lane and its phase; optionally what launching it takes of the host.

    `time_us` is the device's own time: what the op takes where the host is far ahead. `launch_us` is the host's time
    until the op's last kernel is issued; the op ends no earlier than `tail_us` after that (None: `time_us`, as for an
    op of one kernel; never more). Where `host_waits`, the host goes on only when the op has ended, as for `item()`.
    Without these fields launching costs nothing.
    """

    name: str
    time_us: Microseconds
    phase: Phase
    launch_us: Microseconds = 0
    tail_us: Microseconds | None = None
    host_waits: bool = False

    @property
    def after_launch_us(self) -> int:
        """How long the op lasts at the least once the host has issued its last kernel."""
        return self.time_us if self.tail_us is None else self.tail_us


class SwapTensor(Record, frozen=True, kw_only=True):
    """A tensor that may be absent strictly between its last forward and its first backward use (op indices)."""

    id: TensorId
    bytes: Bytes
    last_forward_use: Index
    first_backward_use: Index


class SwapLink(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The host link, full duplex: one lane out, one lane in.

    A transfer takes `latency_us` + ⌈bytes · 10⁶ / rate⌉ µs. Where `latency_ns` is given, it takes that + ⌈bytes · 10⁹ /
    rate⌉ ns instead, so that many short transfers do not add up half a microsecond each; `latency_us` is then the
    same, rounded up.
    """

    out_bytes_per_s: Rate
    in_bytes_per_s: Rate
    latency_us: Microseconds
    latency_ns: Nanoseconds | None = None

    def __post_init__(self) -> None:
        """Refuse two latencies that contradict each other."""
        require(
            self.latency_ns is None or -(-self.latency_ns // 1000) == self.latency_us,
            f"latency_ns is {self.latency_ns}, but latency_us {self.latency_us}: give the same, rounded up",
        )

    @property
    def ticks(self) -> int:
        """Ticks in a microsecond: how finely time is counted."""
        return 1 if self.latency_ns is None else 1000

    def out_ticks(self, size_bytes: int) -> int:
        """Time of one swap-out."""
        return self._ticks(size_bytes, self.out_bytes_per_s)

    def in_ticks(self, size_bytes: int) -> int:
        """Time of one swap-in."""
        return self._ticks(size_bytes, self.in_bytes_per_s)

    def _ticks(self, size_bytes: int, bytes_per_s: int) -> int:
        latency = self.latency_us if self.latency_ns is None else self.latency_ns
        return latency + -(-size_bytes * 1_000_000 * self.ticks // bytes_per_s)

    def out_us(self, size_bytes: int) -> int:
        """Time of one swap-out in microseconds, rounded up."""
        return -(-self.out_ticks(size_bytes) // self.ticks)

    def in_us(self, size_bytes: int) -> int:
        """Time of one swap-in in microseconds, rounded up."""
        return -(-self.in_ticks(size_bytes) // self.ticks)


class SwapProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """Keep the step within `budget_bytes` by swapping; `memory_bytes[j]` is in use during op j with nothing swapped.

    `launch_us` is the host's time to issue one transfer (absent: 0). Where launching costs nothing anywhere, every op
    takes at least 1 us; else ops may take 0 us of the device. What is swapped takes at most `host_budget_bytes` of the
    host at any time (absent: whatever it takes), counted by `host_rounding` (formats.md 3.10).
    """

    budget_bytes: Bytes
    ops: tuple[SwapOp, ...]
    memory_bytes: tuple[Bytes, ...]
    tensors: tuple[SwapTensor, ...]
    link: SwapLink
    launch_us: Microseconds = 0
    host_budget_bytes: Bytes | None = None
    host_rounding: HostRounding = "exact"
    KIND: ClassVar[str] = "swap"

    @property
    def has_launches(self) -> bool:
        """Whether launching costs anything: an op or a transfer takes time of the host."""
        return self.launch_us > 0 or any(op.launch_us > 0 for op in self.ops)

    def __post_init__(self) -> None:
        """Refuse lists of unequal length, times that make no sense, repeated ids, and uses out of order or range."""
        count = len(self.ops)
        require(count > 0, "ops is empty: a swap problem needs at least one op")
        require(
            len(self.memory_bytes) == count,
            f"memory_bytes has {len(self.memory_bytes)} entries for {count} ops: give one each",
        )
        self._check_times()
        require_unique([tensor.id for tensor in self.tensors], "tensor")
        for number, tensor in enumerate(self.tensors):
            first, last = tensor.last_forward_use, tensor.first_backward_use
            require_index(last, count, f"tensors[{number}].first_backward_use", "ops")
            require(
                first < last,
                f"tensors[{number}].last_forward_use is {first}, not before first_backward_use {last}: correct them",
            )

    def _check_times(self) -> None:
        launched = self.has_launches
        for number, op in enumerate(self.ops):
            require(
                op.time_us > 0 or launched,
                f"ops[{number}].time_us is 0, but `int` >= 1 is expected where no launch_us is given",
            )
            require(
                op.after_launch_us <= op.time_us,
                f"ops[{number}].tail_us is {op.tail_us}, above its time_us {op.time_us}: lower it",
            )
        link = self.link
        moves = sum(link.out_ticks(one.bytes) + link.in_ticks(one.bytes) for one in self.tensors)
        launches = sum(op.launch_us for op in self.ops) + 2 * len(self.tensors) * self.launch_us
        require_step(sum(op.time_us for op in self.ops) + launches - (-moves // link.ticks))


class Swap(Record, frozen=True, kw_only=True):
    """One tensor leaves after its last forward use, and its swap-in is issued right before op `swap_in_at`."""

    tensor: TensorId
    swap_in_at: Index


class SwapPlan(Plan, frozen=True, kw_only=True):
    """The decision; the list order breaks ties in the FIFO lanes, so it is part of the decision."""

    swaps: tuple[Swap, ...]
