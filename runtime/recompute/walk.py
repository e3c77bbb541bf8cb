"""Carries a recomputation plan out while a model trains: a tape for each block, replays in windows of collectives.

One file: a walk's calls and its windows are one state.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from runtime.blocks.replacing import forward_replaced
from runtime.device.native import core
from runtime.device.trace import RequestTrace
from runtime.recompute.alive import if_alive
from runtime.recompute.calls import (
    Call,
    Given,
    calls_before,
    given_by,
    regions_of,
    returned_by,
    wants_gradients,
)
from runtime.recompute.counts import Counts, PassClock
from runtime.recompute.course import LAST
from runtime.recompute.footprint import again_mark_of, mark_of
from runtime.recompute.measurement import Measurement
from runtime.recompute.moves import Move, Mover
from runtime.recompute.numbering import Numbering
from runtime.recompute.policy import ON_DEMAND, BlockPolicy, store_nothing
from runtime.recompute.tape import Tape, prepare_recorder, record
from runtime.recompute.together import groups_of
from runtime.recompute.work import carry_out
from solvers.ir.errors import InvalidInput

NO_BACKWARD = -1
"""Autograd's number of the backward pass under way on a thread where there is none."""


@dataclass(eq=False)
class Walk(AbstractContextManager["Walk"]):
    """Runs blocks under policies, one for each; inside, losses and gradients are those of plain training.

    A *pass* is one run through the blocks, or several where `numbering` knows them as one. While the backward pass of a
    block runs, its waits for collectives open windows, in which operators of the block before run again; during a
    forward pass, those of the same block in the oldest pass that has not had its backward pass. Policies know blocks by
    their `numbering`; calls that differ from those that it has measured store nothing and count as diverged. A call of
    which nothing wants gradients is no part of a pass.

    What is measured: operators and waits where the walk is `timed`, with `intervals` also what the device's memory
    does between events (`measurement`), for which its statistics are begun anew; whole passes where it is `clocked`.

    Who is told: `on_pass` before each pass, of what its first block is given; `on_peak` when memory has passed its
    peak, before the backward pass of a pass's first block and after the whole one; `on_aside` where a block runs
    without gradients between passes; `on_within`, of its index, where one runs within a backward pass; `watch`, of
    each value that autograd asks for: which of `calls`, the node, its place. `on_other` is asked, with `strayed` and
    `growth`, whether a pass is none of the plan's: the rest of it stores nothing then, and what it has stored goes.

    What is seen of the last pass: whether it had its backward pass (`whole`), what its first block was `given`, what
    it took (`timed_pass`), whether calls diverged or ran other operators than their policy is for (`strayed`), and how
    many times as much as it may store the policy of one of its calls asked for, at most (`growth`). `groups`: with
    whom calls that are `timed` and `clocked` have communicated in their blocks.
    """

    blocks: Sequence[nn.Module]
    device: torch.device
    policies: Sequence[BlockPolicy]
    timed: bool = False
    intervals: bool = False
    on_pass: Callable[[Given], None] | None = None
    on_peak: Callable[[], None] | None = None
    on_aside: Callable[[], None] | None = None
    on_within: Callable[[int], None] | None = None
    on_other: Callable[[bool, float], bool] | None = None
    watch: Callable[[Call, tuple[int, int]], None] | None = None
    clocked: bool = False
    counts: Counts = field(default_factory=Counts)
    calls: list[Call] = field(default_factory=list)
    timed_pass: PassClock | None = None
    whole: bool = False
    given: Given = field(default_factory=Given)
    strayed: bool = False
    growth: float = 0.0
    groups: set[dist.ProcessGroup] = field(default_factory=set)
    numbering: Numbering = field(default_factory=lambda: Numbering(()))
    _mover: Mover | None = None
    _began: PassClock | None = None
    _memory: core.MemoryLog | None = None
    _asked: RequestTrace | None = None
    _told: int = 0
    _ending: bool = False
    _retaining: Call | None = None
    _came_again: bool = False
    _gave_way: bool = False
    _passed: bool = False
    _last: Call | None = None
    _in_pass: list[int] = field(default_factory=list)
    _at: int = 0
    _wanting: set[int] = field(default_factory=set)
    _highest: int = -1
    _stack: ExitStack | None = None

    def __enter__(self) -> Self:
        if self._stack is not None:
            raise InvalidInput("this walk has begun already: end it first")
        self.numbering = self.numbering if self.numbering.numbers else Numbering(range(len(self.blocks)))
        prepare_recorder()  # windows look at operators outside of blocks, too
        self.windows = core.Windows(self.device, self.timed)
        self._look_for_moves()
        with ExitStack() as stack:  # undoes what was done where the rest fails
            _watch(self.windows, self.device)
            stack.callback(lambda: self.windows.stop())
            if self.timed and self.intervals and self.device.type != "cpu":
                self.watch_memory()
            for index, block in enumerate(self.blocks):
                stack.enter_context(forward_replaced(block, _forward(weakref.ref(self), index, block.forward)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None
        self._stack.close()
        self._stack = None
        self.end_requests()
        self._end_log()
        self._end_retained()
        self._last = None
        self.settle()

    def watch_memory(self) -> None:
        """From here on log what the device's memory does; no pass may have begun."""
        torch.accelerator.reset_peak_memory_stats(self.device)
        self._memory = core.MemoryLog(self.device)
        self._asked = RequestTrace(self.device)
        self.windows.tell(self._memory)

    def _end_log(self) -> None:
        """Graphs that stay tell nothing more of the measured step."""
        if self._memory is not None:
            self._memory.stop()

    def end_requests(self) -> None:
        """What the allocator is asked from here on is none of the step's."""
        if self._asked is not None:
            self._asked.stop()

    def _look_for_moves(self) -> None:
        """Whether the policies move anything; passes are then timed as a whole, too."""
        moving = any(policy.work is not None and policy.work.moves for policy in self.policies)
        self._mover = Mover(self.device, self.counts.moves) if moving else None

    def settle(self) -> None:
        """Count the tapes that are finished, and forget them."""
        if self.timed:  # they are asked what they cost
            return
        for call in self.calls:
            if call.tape is not None and call.finished:
                self.counts.add(call.tape)
        self.calls = [call for call in self.calls if call.tape is not None and not call.finished]

    @property
    def idle(self) -> bool:
        """Whether there was a pass, and all of them have had their backward pass or were dropped."""
        return self._passed and all(call.finished for call in self.calls)

    @property
    def was_called(self) -> bool:
        """Whether a block was called with gradients, be it that the call failed."""
        return self._told > 0

    def follow(self, policies: Sequence[BlockPolicy]) -> None:
        """Other policies from the next pass on, unmeasured; the walk must be idle."""
        self._end_log()
        self.policies, self.timed, self._memory = policies, False, None
        self.end_requests()
        self._look_for_moves()
        self.settle()
        self.windows.stop()
        self.windows = core.Windows(self.device, self.timed)
        _watch(self.windows, self.device)

    def measure(self) -> None:
        """Store nothing from the next pass on, and measure it; the walk must be idle."""
        self.follow(store_nothing(len(self.blocks)))
        self.calls.clear()
        self.timed, self._told, self.numbering = True, 0, Numbering(range(len(self.blocks)))
        self.windows.stop()
        self.windows = core.Windows(self.device, self.timed)
        _watch(self.windows, self.device)
        if self.device.type != "cpu":
            self.watch_memory()

    def run(self, index: int, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One call of a block."""
        if not torch.is_grad_enabled():
            if self.on_aside is not None and self.idle:
                self.on_aside()
            return forward(*args, **kwargs)
        if index not in self._wanting and not wants_gradients(self.blocks[index], args, kwargs):
            return self._run_frozen(index, forward, args, kwargs)
        if self.on_within is not None and torch._C._current_graph_task_id() != NO_BACKWARD:
            self.on_within(index)
        if self._is_next_pass(index):
            self._begin_pass(Given.of(args, kwargs))
        number, self._at = self.numbering.number_of(index, self._at), self._at + 1
        call = Call(number, self._policy_of(number), self._last, number=self._told, log=self._memory)
        self._told += 1
        if self.numbering.order:
            one_more = call.policy is ON_DEMAND and torch._C._current_graph_task_id() == NO_BACKWARD
            self._look_at_other(call, must=one_more and self.strayed)  # before one pass more takes its memory
        self._mark(mark_of(call.number, backward=False))
        self._last = call
        if index in self._in_pass:  # another forward pass of several that have one plan
            self._in_pass.clear()
        self._in_pass.append(index)
        self._plan_forward(number)
        began, first = len(self.windows.waits), self.windows.mark() if self.timed else 0
        watch = None if self.watch is None else partial(self.watch, call)
        memory = self._memory
        self._look_at_given(call, given_by(args, kwargs))
        self._move(call, -1)
        with record(self.device, call.policy.store, timed=self.timed, watch=watch, memory=memory) as tape:
            call.tape = tape
            self._watch_forward(call, tape)
            result = forward(*args, **kwargs)
            outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            call.returned = returned_by(tape, outputs) if self.timed else {}
            self.groups |= groups_of(tape) if self.timed and self.clocked else set()
        if call.tape.diverged_at is None:
            self._move(call, len(call.tape))
        other = call.policy is not ON_DEMAND and len(call.tape) != len(call.policy.store.names)
        self.strayed = self.strayed or other or call.tape.diverged_at is not None
        self._passed = True
        call.forward_marks = first, self.windows.mark() if self.timed else 0
        call.forward_waits = began, len(self.windows.waits)
        self.calls.append(call)
        self._look_at_other(call)
        self._watch_behind(call)
        self._watch_backward(call, outputs)
        return result

    def _run_frozen(self, index: int, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of which nothing wants gradients: autograd keeps nothing of it, so it is no part of a pass.

        Its result may want some all the same, by tensors that the block was not given: its later calls are recorded.
        """
        result = forward(*args, **kwargs)
        if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(result)):
            self._wanting.add(index)
        return result

    def _policy_of(self, number: int) -> BlockPolicy:
        """What the next call of the block of this number does."""
        diverged = self.numbering.differs(number, self.calls, len(self.policies)) or self._is_out_of_order(number)
        self.counts.diverged += diverged
        self.strayed = self.strayed or diverged
        return ON_DEMAND if diverged or self._gave_way else self.policies[number]

    def _is_out_of_order(self, number: int) -> bool:
        """Whether a plan of the whole step knows this block before another one that this pass has called already."""
        measured = self.numbering.measured or {}
        if number not in measured or self.policies[number].work is None:
            return False
        highest, self._highest = self._highest, max(self._highest, number)
        return number < highest

    def _look_at_other(self, call: Call, *, must: bool = False) -> None:
        """Whether the call was like those that were measured; if not, the pass may have to store nothing, or `must`.

        So may all that are under way where several forward passes have one plan, which leaves no room for one more, nor
        for another order.
        """
        most = call.policy.store.most_bytes
        if most and call.tape is not None:
            self.growth = max(self.growth, call.tape.asked_bytes / most)
        other = self.strayed or self.growth > 1
        if self._gave_way or self.on_other is None or not other:
            return
        if not self.on_other(self.strayed, self.growth) and not must:
            return
        self._gave_way = True
        for one in self.calls if self.numbering.order else (call, *calls_before(call)):
            one.policy = ON_DEMAND
            if one.tape is not None:
                one.tape.drop(list(range(len(one.tape))))

    def _overtakes(self, call: Call) -> bool:
        """Whether the call behind it may still go back, of several forward passes that have one plan."""
        if not self.numbering.order or self._last is None:
            return False
        behind = next((one for one in (self._last, *calls_before(self._last)) if one.before is call), None)
        return behind is not None and behind.backward_waits is None and not behind.finished

    def _look_at_given(self, call: Call, given: Sequence[torch.Tensor]) -> None:
        """Whose storages those are, each the first block's that was given it in this forward pass.

        Storages are told apart by their addresses, which no other one takes as long as something knows them weakly.
        """
        if not self.timed and self._mover is None:
            return
        by_address = {one.untyped_storage()._cdata: one for one in given}
        earlier = set[int]().union(*(one.own for one in islice(calls_before(call), len(self._in_pass) - 1)))
        call.own = {at: core.WeakBytes(one) for at, one in by_address.items() if at not in earlier}
        call.own_bytes = tuple(by_address[at].untyped_storage().nbytes() for at in call.own)
        if self._memory is not None:
            for index, at in enumerate(call.own):
                self._memory.follow(call.number, -1 - index, by_address[at])

    def _is_next_pass(self, index: int) -> bool:
        """Whether a call of that block begins a pass: it was called in this one, or comes before it, and it is over.

        Blocks of two lists that take turns are not called in the order in which they stand before that is measured.
        Where calls have numbers of their own, it is one once all of them were made, or are over.
        """
        if self._last is None:
            return True
        if self.numbering.order:
            over = all(call.finished for call in (self._last, *calls_before(self._last)))
            return over or self._at >= len(self.numbering.order)
        if index in self._in_pass:
            return True
        behind = self.numbering.precedes(index, self._in_pass[-1])
        return behind and all(call.finished for call in (self._last, *calls_before(self._last)))

    def _begin_pass(self, given: Given) -> None:
        if torch._C._current_graph_task_id() == NO_BACKWARD:  # one that failed has not ended
            self._end_retained()
        self._last = None
        self._in_pass.clear()
        self._highest, self._at = -1, 0
        self.settle()
        if self.on_pass is not None:
            self.on_pass(given)
        if self.calls:  # another pass is under way: what is seen of both is told when both are over
            self.given = max(self.given, given, key=lambda one: one.extent)
        else:
            self.given, self.strayed, self.growth = given, False, 0.0
        self._gave_way = False
        self.whole = self._ending = False
        if self.clocked or self._mover is not None:
            self._began = PassClock(self.windows, self.windows.mark())

    def _move(self, call: Call, node: int) -> None:
        """What the plan moves before a node of the block's forward pass; −1: before all, their number: behind all."""
        self._do(call, () if call.policy.work is None else call.policy.work.forward.get(node, ()))

    def _do(self, call: Call, moves: Sequence[Move]) -> None:
        for move in moves:
            assert self._mover is not None
            self._mover.carry_out(move, regions_of(call))

    def _watch_behind(self, call: Call) -> None:
        """Moves once the program has done with what the blocks made, at the latest before the backward pass."""
        behind = () if call.policy.work is None else call.policy.work.behind
        if behind and call.tape is not None and call.tape.diverged_at is None:
            self._pause(call, 0, behind)

    def _pause(self, call: Call, begun: int, behind: Sequence[tuple[int, tuple[Move, ...]]]) -> None:
        (after, _), *_ = behind
        self.windows.pause_after(after - begun, partial(if_alive(self._in_pause), call, behind))

    def _in_pause(self, call: Call, behind: Sequence[tuple[int, tuple[Move, ...]]]) -> None:
        """Right before an operator begins, or all that is left where the backward pass does."""
        (after, moves), *left = behind
        self._do(call, moves)
        if left:
            self._pause(call, after + 1, left)

    def _watch_forward(self, call: Call, tape: Tape) -> None:
        """Moves before nodes; none from the first other operator on, as what is stored is not what was planned."""
        last = len(call.policy.store.names)  # behind it, `run` moves
        nodes = [] if call.policy.work is None else [node for node in call.policy.work.forward if 0 <= node < last]
        if not nodes:
            return
        walk = weakref.ref(self)

        def move(node: int) -> None:
            alive = walk()
            if alive is not None and tape.diverged_at is None:
                alive._move(call, node)

        assert call.policy.work is not None
        tape.pause_before(nodes, move, call.policy.work.gathers)

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

        call.awaits = weakref.ref(begin)
        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(begin)  # type: ignore[no-untyped-call]

    def begin_backward(self, call: Call) -> None:
        """The gradient of what the block returned is there."""
        number = torch._C._current_graph_task_id()
        if call.backward_pass == number:
            return
        call.backward_pass, call.returns = number, call.returns + 1
        self._retain(call)
        if not self._ending:
            self._ending = True
            torch.autograd.Variable._execution_engine.queue_callback(if_alive(self.end_whole))
        if call.backward_waits is not None:
            self._begin_again(call)
            return
        overtakes, fewer = self._overtakes(call), call is self._last and self._at < len(self.numbering.order)
        if overtakes or fewer:  # what the passes that are missing were to move is still there
            self.strayed = True
            self._look_at_other(call, must=overtakes)
        now = len(self.windows.waits)
        self.windows.end_pauses()
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
        if before is None and self._began is not None:
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._end_pass, self._began))
        if call.policy.work is not None:
            self.windows.plan([], carry_out(call.policy.work, regions_of(call), self._mover))
            if call.policy.work.within:
                self._pause(call, 0, call.policy.work.within)
        else:
            self.windows.plan([] if before is None else _work(before, before.policy.in_backward))

    def _retain(self, call: Call) -> None:
        """The backward pass comes to a block: what ran again for the last one goes where the graph stays.

        Not where the backward pass has a graph of its own (`create_graph`), which holds what it read.
        """
        self._end_retained()
        if call.tape is not None and keeps_graph() and not torch.is_grad_enabled():
            call.tape.begin_retained()
            call.stays, self._retaining = True, call

    def _end_retained(self) -> None:
        last, self._retaining = self._retaining, None
        if last is not None and last.tape is not None:
            last.tape.end_retained()

    def _begin_again(self, call: Call) -> None:
        """A further backward pass of a graph that stayed comes to a block; no plan has work for it."""
        if not self.timed or call.log is not self._memory:  # its number is another call's by now
            return
        self._end_backward(self.windows.mark())
        self._mark(again_mark_of(call.number))
        self._came_again = True

    def end_whole(self) -> None:
        """The backward pass is over, whichever blocks had a part in it."""
        self._end_retained()
        if self._came_again:
            self._end_backward(self.windows.mark())
            self._mark(LAST)
        self._came_again = False
        self.whole, self._ending = True, False
        if self.on_peak is not None:
            self.on_peak()

    def _end_pass(self, clock: PassClock) -> None:
        """The backward pass is over; waits behind it are none of the plan's."""
        self.windows.plan([])
        self.windows.end_pauses()
        self.timed_pass = PassClock(clock.windows, clock.began, clock.windows.mark())

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

    @property
    def measurement(self) -> Measurement:
        """What it has measured of the step so far; the walk must be `timed`."""
        return Measurement(self.calls, self._told, self.windows, self._memory, self._asked)

    @property
    def stays(self) -> bool:
        """Whether a backward pass left a block's graph (`retain_graph`), be it that no further one came."""
        return any(call.stays for call in self.calls)

    @property
    def returned(self) -> bool:
        """Whether a backward pass came to each call that is not finished, and is over; another one may come."""
        return self._passed and not self._ending and all(call.finished or call.stays for call in self.calls)

    def _end_backward(self, mark: int) -> None:
        for other in self.calls:
            if other.backward_waits is not None and other.backward_marks[1] is None:
                other.backward_marks = other.backward_marks[0], mark


def keeps_graph() -> bool:
    """Whether the backward pass that is under way lets its graph stay (`retain_graph`)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def _watch(windows: core.Windows, device: torch.device) -> None:
    """Let waits of the device open these windows; raises `InvalidInput` where others are open there."""
    try:
        windows.watch()
    except RuntimeError as error:
        if "somebody else plans the windows" not in str(error):
            raise
        raise InvalidInput(
            f"another session of runtime.recompute is open on {device}: leave it before you enter this one"
        ) from error


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
