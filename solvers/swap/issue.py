"""When the swap-ins of a set of tensors are issued: in the order of their use, as early as memory allows.

Searches ask for thousands of sets a second. Where the native extension was built (csrc/swap), it does the same as
Python here, number for number, in a small part of the time.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from solvers.native import extension
from solvers.swap.evaluate import Choice, Instance, evaluate

NOWHERE = 2**62
NATIVE = extension("solvers.swap._issuing")

_Pass: TypeAlias = tuple[list[Choice], int, bool]
"""Choices, makespan, whether any was issued where neither memory is short nor a tensor of the set is used."""


class Issuer:
    """Issues and measures the swap-ins of one instance; the host's room is not asked."""

    def __init__(self, given: Instance) -> None:
        self.given = replace(given, host=None)

    def issue(self, selected: Sequence[int], eager: bool = True) -> tuple[list[Choice], int] | None:
        """Choices in list order for a set of tensors, and the makespan; None where it does not free enough memory.

        Earliest due date first: swap-ins enter the lane in the order of their first backward use, each at the first op
        at which the lane is about to run idle and the memory of all later ops allows it; at the latest at the use
        itself, as all without `eager`. What is back early takes room, so where the step ends sooner they are issued
        early at ops only that lack memory, use a tensor of the set, or make the host wait.
        """
        found = self._pass(selected, eager, anywhere=True, most=NOWHERE)
        if found is None or not found[2]:
            return found and found[:2]
        other = self._pass(selected, eager, anywhere=False, most=NOWHERE)
        return min(found, other or found, key=lambda issued: issued[1])[:2]

    def quick(self, selected: Sequence[int], most: int) -> tuple[list[Choice], int] | None:
        """The first of these two ways alone; None also where it is seen to take more than `most` before its end."""
        found = self._pass(selected, eager=True, anywhere=True, most=most)
        return found and found[:2]

    def makespan(self, choices: Sequence[Choice]) -> int | None:
        """How long the step takes with these; None where some op finds no time at which it fits."""
        timeline = evaluate(self.given, choices)
        return None if timeline is None else timeline.makespan

    def _pass(self, selected: Sequence[int], eager: bool, anywhere: bool, most: int) -> _Pass | None:
        given, slack = self.given, _slack(self.given, selected)
        if slack is None:
            return None
        state, between = _State(given, selected, slack, eager), False
        uses = {*(given.first[tensor] for tensor in selected), *(given.last[tensor] for tensor in selected)}
        events = sorted({*given.busy, *uses, *(() if given.launches is None else given.launches.waiting)})
        for op, following in zip(events, [*events, len(given.time)][1:], strict=True):
            if not state.run(op) or state.least() > most:
                return None
            idle = op + 1
            while anywhere and (idle := state.soonest(idle, following)) < following:
                issued = state.next
                state.run(idle)
                if state.next == issued:
                    break
                between = True
                idle += 1
        return state.choices, state.end(), between


class Native(Issuer):
    """The same by the native extension."""

    def __init__(self, given: Instance) -> None:
        assert NATIVE is not None
        super().__init__(given)
        self._native = NATIVE.Issuer(given)

    def makespan(self, choices: Sequence[Choice]) -> int | None:
        """How long the step takes with these; None where some op finds no time at which it fits."""
        makespan: int | None = self._native.makespan(choices)
        return makespan

    def _pass(self, selected: Sequence[int], eager: bool, anywhere: bool, most: int) -> _Pass | None:
        found: _Pass | None = self._native.issue(selected, eager, anywhere, most)
        return found


def issuer_of(given: Instance) -> Issuer:
    """By the extension, where it was built and no sum of times or sizes is beyond its 64 bits."""
    launches = 0 if given.launches is None else 2 * given.launches.transfer * len(given.size)
    most = max(given.base + sum(given.out_time) + sum(given.in_time) + launches, sum(given.size) + max(given.need))
    return (Issuer if NATIVE is None or most >= NOWHERE else Native)(given)


def issue_swap_ins(given: Instance, selected: Sequence[int], eager: bool = True) -> list[Choice] | None:
    """What `Issuer.issue` chooses for one set."""
    issued = issuer_of(given).issue(selected, eager)
    return None if issued is None else issued[0]


def _slack(given: Instance, selected: Sequence[int]) -> np.ndarray | None:
    """Per op, the bytes that may return early: absent ones beyond the need (infinite where nothing is needed)."""
    change = np.zeros(len(given.time) + 1, dtype=np.int64)
    for tensor in selected:
        change[given.first[tensor] + 1] += given.size[tensor]
        change[given.last[tensor]] -= given.size[tensor]
    need = np.array(given.need, dtype=np.int64)
    slack = np.where(need > 0, np.cumsum(change)[: len(need)] - need, NOWHERE)
    return None if slack.min(initial=0) < 0 else slack


class _State:
    """The lanes and the memory while the ops run once, front to back."""

    def __init__(self, given: Instance, selected: Sequence[int], slack: np.ndarray, eager: bool) -> None:
        self.given, self.slack, self.eager = given, slack, eager
        self.pending = sorted(selected, key=lambda tensor: (given.last[tensor], -given.size[tensor]))
        self.by_first: dict[int, list[int]] = {}
        self.by_last: dict[int, list[int]] = {}
        for tensor in self.pending:
            self.by_first.setdefault(given.first[tensor], []).append(tensor)
            self.by_last.setdefault(given.last[tensor], []).append(tensor)
        self.next = self.done = self.absent = self.out_free = self.in_free = self.clock = self.host = self.op = 0
        self.issuing = 0 if given.launches is None else given.launches.transfer
        self.queue: list[int] = []
        self.to_return = sum(given.in_time[tensor] for tensor in selected)
        self.out_end: dict[int, int] = {}
        self.in_end: dict[int, int] = {}
        self.gone: set[int] = set()
        self.choices: list[Choice] = []

    def run(self, op: int) -> bool:
        """Run all ops up to this one: wait for memory, issue what is due and what may come early, compute, send."""
        given = self.given
        self._pass(op)
        now = self.clock
        while self.done < len(self.queue) and self.out_end[self.queue[self.done]] <= now:
            self._leave()
        due = self._due(op)
        for tensor in due:
            while tensor not in self.gone:
                now = self._wait(now)
            self.absent -= given.size[tensor]
        while self.absent < given.need[op]:
            if self.done == len(self.queue):
                return False
            now = self._wait(now)
        for tensor in due:
            self._issue(tensor, op, now)
        arrived = max([now, *(self.in_end[tensor] for tensor in self.by_last.get(op, ()))])
        while self.may_issue(op, now, arrived):
            tensor = self.pending[self.next]
            self.next += 1
            self.absent -= given.size[tensor]
            self.slack[op : given.last[tensor]] -= given.size[tensor]
            self._issue(tensor, op, now)
        now = arrived
        self._compute(op, now)
        for tensor in self.by_first.get(op, ()):
            self.host += self.issuing
            self.out_free = self.out_end[tensor] = max(self.out_free, self.clock, self.host) + given.out_time[tensor]
            self.queue.append(tensor)
        return True

    def end(self) -> int:
        """The end of the step, once all is issued."""
        return self._clocks(len(self.given.time))[0]

    def least(self) -> int:
        """No end of the step is sooner: all ops that are left run, and all that has not returned crosses the link."""
        return max(self.clock + self.given.before[-1] - self.given.before[self.op], self.in_free + self.to_return)

    def soonest(self, op: int, following: int) -> int:
        """The first op from this one on before which the next pending tensor may come back, if memory allows it.

        `following`, where there is none before it; memory is short at none of these ops, and the host waits for none.
        """
        gone_at = self.out_end.get(self.pending[self.next]) if self.next < len(self.pending) else None
        if not self.eager or gone_at is None:
            return following

        def idle(at: int) -> bool:
            clock, host = self._clocks(at)
            return clock >= gone_at and self._end(at, clock, host) >= self.in_free

        return op + bisect_left(range(op, following), True, key=idle)

    def _pass(self, op: int) -> None:
        """The clocks come to an op; nothing happens at those between."""
        self.clock, self.host = self._clocks(op)

    def _clocks(self, op: int) -> tuple[int, int]:
        given = self.given
        if given.launches is not None:
            return given.launches.advance(self.op, op, self.clock, self.host)
        return self.clock + given.before[op] - given.before[self.op], self.host

    def _compute(self, op: int, now: int) -> None:
        """The clocks when an op that finds everything at `now` has run."""
        self.clock, launches = self._end(op, now, self.host), self.given.launches
        if launches is not None:
            self.host += launches.host[op]
            self.host = max(self.host, self.clock) if op in launches.waiting else self.host
        self.op = op + 1

    def _end(self, op: int, now: int, host: int) -> int:
        end, launches = now + self.given.time[op], self.given.launches
        return end if launches is None else max(end, host + launches.host[op] + launches.tail[op])

    def may_issue(self, op: int, now: int, arrived: int) -> bool:
        """Whether the next pending tensor may come back right before this op.

        `now` is when the op is ready, `arrived` when what it reads is there: the lane must not idle until it ends.
        """
        if not self.eager or self.next == len(self.pending):
            return False
        given, tensor = self.given, self.pending[self.next]
        size, last = given.size[tensor], given.last[tensor]
        if op >= last or op <= given.first[tensor] or self.in_free > self._end(op, arrived, self.host):
            return False
        if tensor not in self.gone and self.out_end.get(tensor, NOWHERE) > now:
            return False
        return self.absent - size >= given.need[op] and int(self.slack[op:last].min()) >= size

    def _due(self, op: int) -> list[int]:
        start = self.next
        while self.next < len(self.pending) and self.given.last[self.pending[self.next]] <= op:
            self.next += 1
        return self.pending[start : self.next]

    def _leave(self) -> None:
        tensor = self.queue[self.done]
        self.absent += self.given.size[tensor]
        self.gone.add(tensor)
        self.done += 1

    def _wait(self, now: int) -> int:
        now = max(now, self.out_end[self.queue[self.done]])
        self._leave()
        return now

    def _issue(self, tensor: int, op: int, now: int) -> None:
        self.host += self.issuing
        self.to_return -= self.given.in_time[tensor]
        self.in_free = self.in_end[tensor] = max(self.in_free, now, self.host) + self.given.in_time[tensor]
        self.choices.append((tensor, op))
