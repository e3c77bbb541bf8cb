"""The `joint` kind: which outputs stay, leave for the host, or are computed again, decided together (formats.md 14)."""

from collections.abc import Callable
from typing import ClassVar, Literal

from msgspec.structs import fields

from solvers.ir.fields import LARGEST, Bytes, Count, Index, Microseconds, Record, require, require_index
from solvers.ir.problem import Plan, Problem
from solvers.ir.recompute import RecomputeGraphProblem, RecomputeOp, require_earlier_inputs
from solvers.ir.swap import SwapLink


class JointOp(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An operator of a graph; `inputs` are earlier op indices, `comm` marks communication, hiding recomputation.

    `workspace_bytes` are in use while it runs and at no other time. Where `replay` is false it never runs again. Its
    output is moved in so many `copies`, one for each of its storages. `launch_us` and `tail_us` are as in `SwapOp`:
    `time_us` is then the device's own time, `launch_us` the host's time until the last kernel is issued, and the op
    ends no earlier than `tail_us` after that (None: `time_us`). Where it runs again the host takes `again_launch_us`
    (None: `launch_us`). Where `host_waits`, the host goes on only when it has ended, again or not; with a `sync` only
    when its own stage has ("stream"), and all transfers ("device"); `read_us` is what the lane out takes to copy the
    numbers that the host then reads and waits for, in that stage, `sent_us` what for copies for which it does not wait.
    """

    name: str
    time_us: Microseconds
    output_bytes: Bytes
    inputs: tuple[Index, ...]
    comm: bool
    replay: bool = True
    workspace_bytes: Bytes = 0
    copies: Count = 1
    launch_us: Microseconds = 0
    tail_us: Microseconds | None = None
    again_launch_us: Microseconds | None = None
    host_waits: bool = False
    sync: Literal["stream", "device"] | None = None
    read_us: Microseconds = 0
    sent_us: Microseconds = 0

    @property
    def launch_again_us(self) -> int:
        """The host's time to issue it where it runs again."""
        return self.launch_us if self.again_launch_us is None else self.again_launch_us

    @property
    def after_launch_us(self) -> int:
        """How long the op lasts at the least once the host has issued its last kernel."""
        return self.time_us if self.tail_us is None else self.tail_us


class JointProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """Ops in order, op t first in stage t; `static_bytes` is parameters, their gradients, optimizer states.

    Before the stage `replays_from` nothing runs again. What is swapped takes at most `host_budget_bytes` of the host at
    any time (absent: whatever it takes). Where `comm_shares_link`, communication and transfers take turns on the link.
    `launch_us` is the host's time to issue one copy of a transfer (absent: 0).
    """

    budget_bytes: Bytes
    static_bytes: Bytes
    ops: tuple[JointOp, ...]
    link: SwapLink
    replays_from: Index = 0
    host_budget_bytes: Bytes | None = None
    comm_shares_link: bool = False
    launch_us: Microseconds = 0
    KIND: ClassVar[str] = "joint"

    def __post_init__(self) -> None:
        """Refuse an empty graph, cycles (inputs are earlier ops), a stage that there is not, and absurd amounts."""
        require(bool(self.ops), "ops is empty: a joint problem needs at least one op")
        require_earlier_inputs([op.inputs for op in self.ops])
        require_index(self.replays_from, len(self.ops), "replays_from", "stages")
        for number, op in enumerate(self.ops):
            require(
                op.after_launch_us <= op.time_us,
                f"ops[{number}].tail_us is {op.tail_us}, above its time_us {op.time_us}: lower it",
            )
            require(
                op.sync in (None, "stream", "device"),
                f"ops[{number}].sync is {op.sync!r}: choose of device, stream, or leave it out",
            )
            require(
                not (op.comm and (op.host_waits or op.read_us or op.sent_us or op.sync)),
                f"ops[{number}] is communication, for which no host waits: drop its host_waits, sync, read_us, sent_us",
            )
        self._check_sums()

    @property
    def has_launches(self) -> bool:
        """Whether launching costs anything: an op or a transfer takes time of the host, which may wait."""
        return self.launch_us > 0 or any(
            op.launch_us or op.again_launch_us or op.host_waits or op.read_us or op.sent_us or op.sync
            for op in self.ops
        )

    def out_ticks(self, op: int) -> int:
        """Time of the swap-out of an op's output, all its copies, in ticks of the link."""
        return self._transfer(self.link.out_ticks, self.ops[op])

    def in_ticks(self, op: int) -> int:
        """Time of its swap-in."""
        return self._transfer(self.link.in_ticks, self.ops[op])

    def _transfer(self, ticks: Callable[[int], int], op: JointOp) -> int:
        return ticks(op.output_bytes) + (op.copies - 1) * ticks(0)

    def without_link(self, more_static_bytes: int = 0) -> RecomputeGraphProblem:
        """The same ops as a `recompute-graph` problem, which knows neither a link nor workspace."""
        shared = [field.name for field in fields(RecomputeOp)]
        return RecomputeGraphProblem(
            name=self.name,
            budget_bytes=self.budget_bytes,
            static_bytes=self.static_bytes + more_static_bytes,
            replays_from=self.replays_from,
            ops=tuple(RecomputeOp(**{name: getattr(op, name) for name in shared}) for op in self.ops),
        )

    def _check_sums(self) -> None:
        """Steps and memory of any decision that every JSON reader holds exactly.

        A stage runs an op once at most, and each of its outputs leaves and returns once at most; while the step lasts
        the host, the device or a lane of the link is busy. So no step is longer than all that together.
        """
        count, link = len(self.ops), self.link
        longest = sum(
            (count - i) * (self.out_ticks(i) + self.in_ticks(i) + link.ticks * self._own_us(op))
            for i, op in enumerate(self.ops)
        )
        step = -(-longest // link.ticks)
        require(
            step <= LARGEST,
            f"a step may take {step} us, beyond the {LARGEST} that files hold: correct times, sizes, rates or latency",
        )
        held = self.static_bytes + sum(op.output_bytes for op in self.ops)
        held += max(op.output_bytes + op.workspace_bytes for op in self.ops)
        require(
            held <= LARGEST,
            f"the device may hold {held} bytes, beyond the {LARGEST} that files hold: correct the sizes",
        )

    def _own_us(self, op: JointOp) -> int:
        """What an op takes of the device and of the host, with both moves of its output."""
        launches = max(op.launch_us, op.launch_again_us) + 2 * op.copies * self.launch_us
        return op.time_us + launches + op.read_us + op.sent_us


class JointSwap(Record, frozen=True, kw_only=True):
    """Op `op`'s output leaves when stage `out_after` has ended; its way back is issued when stage `in_at` is ready."""

    op: Index
    out_after: Index
    in_at: Index


class JointPlan(Plan, frozen=True, kw_only=True, omit_defaults=True):
    """`compute` lists the [stage, op] pairs with R = 1 (every [t, t] included), `keep` those with S = 1.

    `keep_runs` says the same as `keep` in fewer words, [op, first stage, last stage]. The order of `swap` breaks ties
    in the FIFO lanes, so it is part of the decision.
    """

    compute: tuple[tuple[Index, Index], ...]
    keep: tuple[tuple[Index, Index], ...] = ()
    keep_runs: tuple[tuple[Index, Index, Index], ...] = ()
    swap: tuple[JointSwap, ...] = ()
