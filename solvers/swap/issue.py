"""When the swap-ins of a set of tensors are issued: in the order of their use, as early as memory allows."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from solvers.swap.evaluate import Choice, Instance

NOWHERE = 2**62


def issue_swap_ins(given: Instance, selected: Sequence[int], eager: bool = True) -> list[Choice] | None:
    """The choices, in list order, for a set of tensors; None where the set does not free enough memory.

    Earliest due date first: swap-ins enter the lane in the order of their first backward use, each at the first op at
    which the lane is about to run idle and the memory of all later ops allows it; at the latest at the use itself.
    """
    slack = _slack(given, selected)
    if slack is None:
        return None
    state = _State(given, selected, slack, eager)
    uses = {*(given.first[tensor] for tensor in selected), *(given.last[tensor] for tensor in selected)}
    events = sorted({*given.busy, *uses, *(() if given.launches is None else given.launches.waiting)})
    for op, following in zip(events, [*events[1:], len(given.time)], strict=True):
        if not state.run(op):
            return None
        idle = op + 1
        while (idle := state.soonest(idle, following)) < following:
            issued = state.next
            state.run(idle)
            if state.next == issued:
                break
            idle += 1
    return state.choices


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
        self.in_free = self.in_end[tensor] = max(self.in_free, now, self.host) + self.given.in_time[tensor]
        self.choices.append((tensor, op))
