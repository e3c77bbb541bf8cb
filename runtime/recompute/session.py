"""Carries a recomputation plan out while a model trains: a tape for each block, replays in windows of collectives.

One file: a walk's calls, its windows and what it measures of them are one state.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from runtime.blocks.replacing import forward_replaced
from runtime.device.native import core
from runtime.recompute.course import TapeShape
from runtime.recompute.footprint import LAST, CallFacts, Footprint, mark_of
from runtime.recompute.layer import BlockPolicy, Layer, units_of
from runtime.recompute.tape import NOTHING, StorePolicy, Tape, record
from runtime.recompute.work import carry_out
from solvers.ir.errors import InvalidInput


@dataclass(eq=False)
class Call:
    """One call of a block in a pass: its tape, and the block's call before it in the same pass."""

    block: int
    policy: BlockPolicy
    before: "Call | None"
    tape: Tape | None = None
    output: int | None = None
    number: int = 0
    input_bytes: int = 0
    forward_waits: tuple[int, int] = (0, 0)
    backward_waits: tuple[int, int | None] | None = None
    backward_marks: tuple[int, int | None] = (0, None)


@dataclass
class Counts:
    """What ran again since the session began, in operators: when autograd asked, and ahead of it, in windows."""

    on_demand: int = 0
    ahead: int = 0
    left_out: int = 0
    diverged: int = 0
    copies: int = 0

    def add(self, tape: Tape) -> None:
        """What a tape that is finished did."""
        self.on_demand += tape.replayed_on_demand
        self.ahead += tape.replayed_ahead
        self.left_out += tape.left_out
        self.diverged += tape.diverged_at is not None
        self.copies += tape.copies


ON_DEMAND = BlockPolicy(NOTHING, {}, {})
"""Nothing is stored but collectives' results, and all else runs again when autograd asks for it."""


@dataclass(eq=False)
class Walk(AbstractContextManager["Walk"]):
    """Runs blocks under policies, one for each; inside, losses and gradients are those of plain training.

    A *pass* is one run through the blocks. While the backward pass of a block runs, its waits for collectives open
    windows, in which operators of the block before run again; during a forward pass, those of the same block in the
    oldest pass that has not had its backward pass. `timed` measures operators and waits; with `intervals` also what the
    device's memory does between events (`footprint`), for which its statistics are begun anew. `on_pass` is called
    before each pass, `on_peak` when memory has passed its peak: before the backward pass of a pass's first block, and
    after the whole one. `watch` is told each value that autograd asks for: which of `calls`, the node, its place.
    """

    blocks: Sequence[nn.Module]
    device: torch.device
    policies: Sequence[BlockPolicy]
    timed: bool = False
    intervals: bool = False
    on_pass: Callable[[], None] | None = None
    on_peak: Callable[[], None] | None = None
    watch: Callable[[Call, tuple[int, int]], None] | None = None
    counts: Counts = field(default_factory=Counts)
    calls: list[Call] = field(default_factory=list)
    _memory: core.MemoryLog | None = None
    _told: int = 0
    _passed: bool = False
    _last: Call | None = None
    _stack: ExitStack | None = None

    def __enter__(self) -> Self:
        if self._stack is not None:
            raise InvalidInput("this walk has begun already: end it first")
        self.windows = core.Windows(self.device, self.timed)
        if self.timed and self.intervals and self.device.type != "cpu":
            self.watch_memory()
        self._stack = ExitStack()
        for index, block in enumerate(self.blocks):
            self._stack.enter_context(forward_replaced(block, _forward(weakref.ref(self), index, block.forward)))
        self.windows.watch()
        self._stack.callback(lambda: self.windows.stop())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None
        self._stack.close()
        self._stack = None
        self._last = None
        self.settle()

    def watch_memory(self) -> None:
        """From here on log what the device's memory does; no pass may have begun."""
        torch.accelerator.reset_peak_memory_stats(self.device)
        self._memory = core.MemoryLog(self.device)
        self.windows.tell(self._memory)

    def settle(self) -> None:
        """Count the tapes that are finished, and forget them."""
        if self.timed:  # they are asked what they cost
            return
        for call in self.calls:
            if call.tape is not None and call.tape.finished:
                self.counts.add(call.tape)
        self.calls = [call for call in self.calls if call.tape is not None and not call.tape.finished]

    @property
    def idle(self) -> bool:
        """Whether there was a pass, and all of them have had their backward pass or were dropped."""
        return self._passed and all(call.tape is not None and call.tape.finished for call in self.calls)

    def follow(self, policies: Sequence[BlockPolicy]) -> None:
        """Other policies from the next pass on, unmeasured; the walk must be idle."""
        self.policies, self.timed, self._memory = policies, False, None
        self.settle()
        self.windows.stop()
        self.windows = core.Windows(self.device, self.timed)
        self.windows.watch()

    def run(self, index: int, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One call of a block."""
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        if self._last is None or index <= self._last.block:
            self._begin_pass()
        call = Call(index, self.policies[index], self._last, number=self._told)
        self._told += 1
        self._mark(mark_of(call.number, backward=False))
        self._last = call
        self._plan_forward(index)
        began = len(self.windows.waits)
        watch = None if self.watch is None else partial(self.watch, call)
        memory = self._memory
        with record(self.device, call.policy.store, timed=self.timed, watch=watch, memory=memory) as tape:
            result = forward(*args, **kwargs)
            outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            call.output = _node_of(tape, outputs)
        self._passed = True
        call.tape = tape
        call.forward_waits = began, len(self.windows.waits)
        call.input_bytes = _bytes(args, kwargs)
        self.calls.append(call)
        self._watch_backward(call, outputs)
        return result

    def _begin_pass(self) -> None:
        self._last = None
        self.settle()
        if self.on_pass is not None:
            self.on_pass()

    def _plan_forward(self, index: int) -> None:
        """The windows of this forward pass serve the same block's call in the oldest pass without backward."""
        oldest = next((call for call in self.calls if call.block == index and call.backward_waits is None), None)
        self.windows.plan([] if oldest is None else _work(oldest, oldest.policy.in_forward))

    def _watch_backward(self, call: Call, outputs: Sequence[torch.Tensor]) -> None:
        walk = weakref.ref(self)

        def begin(_: torch.Tensor) -> None:
            alive = walk()
            if alive is not None:
                alive.begin_backward(call)

        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(begin)  # type: ignore[no-untyped-call]

    def begin_backward(self, call: Call) -> None:
        """The gradient of what the block returned is there."""
        if call.backward_waits is not None:
            return
        now = len(self.windows.waits)
        self._mark(mark_of(call.number, backward=True))
        if self.timed:
            self._measure_backward(call)
        for other in self.calls:
            if other.backward_waits is not None and other.backward_waits[1] is None:
                other.backward_waits = other.backward_waits[0], now
        call.backward_waits = now, None
        before = call.before
        if before is None and self.on_peak is not None:
            self.on_peak()
            torch.autograd.Variable._execution_engine.queue_callback(self.on_peak)
        if call.policy.work is not None:
            self.windows.plan(carry_out(call.policy.work, _tapes(call)))
        else:
            self.windows.plan([] if before is None else _work(before, before.policy.in_backward))

    def _measure_backward(self, call: Call) -> None:
        """Marks where a block's backward pass begins, which is where the one before it in time ends."""
        mark = self.windows.mark()
        self._end_backward(mark)
        call.backward_marks = mark, None
        if call.before is None:
            windows = self.windows

            def end() -> None:
                self._end_backward(windows.mark())
                self._mark(LAST)

            torch.autograd.Variable._execution_engine.queue_callback(end)

    def _mark(self, name: int) -> None:
        """An event of the walk's own in the log of the device's memory."""
        if self._memory is not None:
            self._memory.mark(name)

    def footprint(self) -> Footprint:
        """What the step so far did to the device's memory; the walk must be `timed`, with `intervals`."""
        assert self._memory is not None
        facts = {
            call.number: CallFacts(
                call.block, None if call.before is None else call.before.number, TapeShape.of(call.tape), call.policy
            )
            for call in self.calls
            if call.tape is not None
        }
        unknown = CallFacts(-1, None, TapeShape((), ()), ON_DEMAND)  # a call that failed
        return Footprint(self._memory.events, [facts.get(number, unknown) for number in range(self._told)])

    def _end_backward(self, mark: int) -> None:
        for other in self.calls:
            if other.backward_waits is not None and other.backward_marks[1] is None:
                other.backward_marks = other.backward_marks[0], mark

    def layers(self) -> list[Layer]:
        """The blocks as measured in the last complete pass; the walk must be `timed`."""
        by_block = {
            call.block: call for call in self.calls if call.tape is not None and call.backward_waits is not None
        }
        return [self._layer(by_block[index]) for index in sorted(by_block)]

    def _layer(self, call: Call) -> Layer:
        assert call.tape is not None and call.backward_waits is not None
        began, ended = call.backward_waits
        waits = self._waits(*call.forward_waits)
        backward = self._waits(began, len(self.windows.waits) if ended is None else ended)
        return Layer(
            units=units_of(call.tape, call.output, waits),
            forward_waits_us=waits,
            backward_waits_us=backward,
            input_bytes=call.input_bytes,
            names=tuple(node.name for node in call.tape.nodes),
            backward_us=self._backward_us(call, sum(backward)),
        )

    def _backward_us(self, call: Call, stalls_us: float) -> float:
        """What the block's backward pass took, less its stalls and what ran again in it."""
        assert call.tape is not None
        first, last = call.backward_marks
        if last is None:
            return 0.0
        again = sum(node.time_us for node in call.tape.nodes if not node.stored)
        return max(0.0, self.windows.at_us(last) - self.windows.at_us(first) - stalls_us - again)

    def _waits(self, began: int, ended: int) -> tuple[float, ...]:
        pairs = self.windows.waits[began:ended]
        return tuple(self.windows.at_us(last) - self.windows.at_us(first) for first, last in pairs)


def _forward(walk: "weakref.ref[Walk]", index: int, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        alive = walk()
        return forward(*args, **kwargs) if alive is None else alive.run(index, forward, args, kwargs)

    return run


def _work(call: Call, by_wait: Any) -> list[list[tuple[Tape, list[int]]]]:
    """What each of the next waits runs again; a tape that is finished wants nothing."""
    assert call.tape is not None
    return [
        [(call.tape, list(by_wait[wait]))] if wait in by_wait else [] for wait in range(max(by_wait, default=-1) + 1)
    ]


def _tapes(call: Call) -> dict[int, Tape]:
    """The tapes of a call and of those before it in its pass, by block."""
    found: dict[int, Tape] = {}
    one: Call | None = call
    while one is not None:
        if one.tape is not None:
            found[one.block] = one.tape
        one = one.before
    return found


def _node_of(tape: Tape, outputs: Sequence[torch.Tensor]) -> int | None:
    """The node that made what the block returns, where that is one storage of the region."""
    nodes = {tape.node_of(_local(one)) for one in outputs if one.requires_grad}
    return nodes.pop() if len(nodes) == 1 else None


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """What a DTensor has on this rank."""
    inner = getattr(tensor, "_local_tensor", tensor)
    return inner if isinstance(inner, torch.Tensor) else tensor


def _bytes(args: Any, kwargs: Any) -> int:
    """What autograd may keep of a block's arguments: storages of tensors that have gradients."""
    leaves = (
        _local(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    )
    return sum({one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in leaves}.values())


def store_nothing(policies: int) -> list[BlockPolicy]:
    """So many blocks that run again whatever autograd asks for."""
    return [ON_DEMAND] * policies


def store_everything(policies: int) -> list[BlockPolicy]:
    """So many blocks that store all that autograd saves, as plain training does."""
    return [BlockPolicy(StorePolicy(), {}, {})] * policies
