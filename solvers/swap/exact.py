"""The exact model of formats.md 3 as a linear model with binaries, for small instances (README, model X)."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from solvers.engines import LinearModel, ModelBuilder
from solvers.engines.model import FloatArray
from solvers.swap.evaluate import Choice, Instance
from solvers.swap.host import HostRoom
from solvers.swap.launches import Launches


@dataclass(frozen=True)
class Exact:
    """The model and where a plan is read from its solution: issue binaries and list positions."""

    model: LinearModel
    issues: dict[tuple[int, int], int]
    positions: list[int]

    def choices(self, x: FloatArray) -> list[Choice]:
        """The plan that a solution states, in list order."""
        chosen = [(tensor, op) for (tensor, op), column in self.issues.items() if x[column] > 0.5]
        return sorted(chosen, key=lambda choice: x[self.positions[choice[0]]])


def exact(given: Instance, horizon: int) -> Exact:
    """Build model X; `horizon` is a makespan that some plan reaches, so that no optimal time lies beyond it."""
    return _Builder(given, horizon).build()


def largest_number(given: Instance, horizon: int) -> int:
    """No coefficient or limit of model X, nor the sum of two, lies beyond it."""
    on_host = 0 if given.host is None else 2 * sum(given.host.size)
    return max(4 * _big(given, horizon), *given.size, *given.need, on_host)


def _big(given: Instance, horizon: int) -> int:
    issuing = 0 if given.launches is None else given.launches.transfer
    return horizon + max([*given.out_time, *given.in_time, *given.time, issuing])


class _Host:
    """Columns of the host's clock: before and after it launches each op, and when it has issued each transfer."""

    def __init__(self, builder: ModelBuilder, given: Instance, costs: Launches, horizon: int) -> None:
        self.costs, ops, tensors = costs, len(given.time), len(given.size)
        self.before, self.after = (
            builder.columns(ops, 0, horizon, integer=True, name=name) for name in ("before_launch", "launched")
        )
        self.out, self.back = (
            builder.columns(tensors, 0, horizon, integer=True, name=name) for name in ("out_issued", "in_issued")
        )


class _Builder:
    """One constraint family a method, numbered as in the README."""

    def __init__(self, given: Instance, horizon: int) -> None:
        self.given = given
        self.builder = ModelBuilder("swap-exact")
        self.ops, self.tensors = len(given.time), len(given.size)
        self.big = _big(given, horizon)
        integers = self.builder.columns
        self.ready = integers(self.ops, 0, horizon, integer=True, name="ready")
        self.start = integers(self.ops, 0, horizon, integer=True, name="start")
        self.out = integers(self.tensors, 0, horizon, integer=True, name="out_end")
        self.back = integers(self.tensors, 0, horizon, integer=True, name="in_end")
        self.host = None if given.launches is None else _Host(self.builder, given, given.launches, horizon)
        self.position = integers(self.tensors, 0, max(0, self.tensors - 1), integer=True, name="position")
        self.swapped = self.builder.binaries(self.tensors, name="swapped")
        self.issue = {
            (tensor, op): self.builder.binary(name=f"issue.{tensor}.{op}")
            for tensor in range(self.tensors)
            for op in range(given.first[tensor] + 1, given.last[tensor] + 1)
        }

    def build(self) -> Exact:
        self._clock()
        for tensor in range(self.tensors):
            self._transfers(tensor)
        if self.host is not None:
            self._launches(self.host)
        for one, two in combinations(range(self.tensors), 2):
            self._pair(one, two)
        for op in self.given.busy:
            self._memory(op)
        if self.given.host is not None:
            self._host_room(self.given.host)
        self.builder.add_cost([int(self.start[-1])], [1.0])
        self.builder.add_offset(self.given.time[-1])
        return Exact(self.builder.build(), self.issue, [int(column) for column in self.position])

    def _at_least(self, name: str, terms: list[tuple[int, float]], lower: float) -> None:
        columns, values = zip(*terms, strict=True)
        self.builder.row(np.array(columns), np.array(values, dtype=np.float64), lower=lower, name=name)

    def _clock(self) -> None:
        """(X1) An op starts when it is ready, and is ready when the op before has ended."""
        for op in range(self.ops):
            self._at_least("start", [(self.start[op], 1), (self.ready[op], -1)], 0)
            if op:
                self._at_least("next", [(self.ready[op], 1), (self.start[op - 1], -1)], self.given.time[op - 1])

    def _transfers(self, tensor: int) -> None:
        """(X2)-(X5) One issue op at most; out after the last use; issue after out; back before the first use."""
        given, big = self.given, self.big
        first, last = given.first[tensor], given.last[tensor]
        swapped, out, back = self.swapped[tensor], self.out[tensor], self.back[tensor]
        issues = [(self.issue[tensor, op], 1.0) for op in range(first + 1, last + 1)]
        self.builder.row([*(column for column, _ in issues), swapped], [1.0] * len(issues) + [-1.0], 0, 0, "one_issue")
        leave = given.time[first] + given.out_time[tensor]
        self._at_least("leave", [(out, 1), (self.start[first], -1), (swapped, -big)], leave - big)
        for op in range(first + 1, last + 1):
            column = self.issue[tensor, op]
            self._at_least("left", [(self.ready[op], 1), (out, -1), (column, -big)], -big)
            self._at_least("return", [(back, 1), (self.ready[op], -1), (column, -big)], given.in_time[tensor] - big)
        self._at_least("back", [(self.start[last], 1), (back, -1), (swapped, -big)], -big)

    def _pair(self, one: int, two: int) -> None:
        """(X6)-(X8) Both lanes are FIFO: by op, then by list position."""
        order = self.builder.binary(name="listed_first")
        size = self.tensors
        self._at_least("listed", [(self.position[two], 1), (self.position[one], -1), (order, -size)], 1 - size)
        self._at_least("listed", [(self.position[one], 1), (self.position[two], -1), (order, size)], 1)
        first = self.given.first
        if first[one] == first[two]:
            self._queue(self.out, self.given.out_time, one, two, order)
        else:
            early, late = (one, two) if first[one] < first[two] else (two, one)
            both = [(self.swapped[early], -self.big), (self.swapped[late], -self.big)]
            self._at_least(
                "out_fifo",
                [(self.out[late], 1), (self.out[early], -1), *both],
                self.given.out_time[late] - 2 * self.big,
            )
        before = self.builder.binary(name="back_first")
        self._queue(self.back, self.given.in_time, one, two, before)
        self._issue_order(one, two, before, order)
        if self.host is not None:
            issuing = [self.host.costs.transfer] * self.tensors
            self._queue(self.host.back, issuing, one, two, before)
            if first[one] == first[two]:
                self._queue(self.host.out, issuing, one, two, order)

    def _queue(self, ends: np.ndarray, times: list[int], one: int, two: int, before: int) -> None:
        """If both are swapped, `before` = 1 puts `one` ahead of `two` in a lane, 0 behind it."""
        big = self.big
        both = [(self.swapped[one], -big), (self.swapped[two], -big)]
        self._at_least("ahead", [(ends[two], 1), (ends[one], -1), (before, -big), *both], times[two] - 3 * big)
        self._at_least("behind", [(ends[one], 1), (ends[two], -1), (before, big), *both], times[one] - 2 * big)

    def _issue_order(self, one: int, two: int, before: int, order: int) -> None:
        """A tensor ahead in the in lane is issued no later; if issued at the same op, it is listed first."""
        span = self.ops + 1
        issue = [
            [
                (self.issue[tensor, op], float(op))
                for op in range(self.given.first[tensor] + 1, self.given.last[tensor] + 1)
            ]
            for tensor in (one, two)
        ]
        both = [(self.swapped[one], -span), (self.swapped[two], -span)]
        negative = [[(column, -value) for column, value in side] for side in issue]
        ahead, behind = [*issue[1], *negative[0], *both], [*issue[0], *negative[1], *both]
        self._at_least("issued_ahead", [*ahead, (before, -span)], -3 * span)
        self._at_least("issued_behind", [*behind, (before, span)], -2 * span)
        self._at_least("tie_ahead", [*ahead, (before, -span), (order, span)], 1 - 3 * span)
        self._at_least("tie_behind", [*behind, (before, span), (order, -span)], 1 - 3 * span)

    def _launches(self, host: "_Host") -> None:
        """(X10) The host launches each op after all that it issued before; the op ends its tail after that or later."""
        given, launches = self.given, host.costs
        for op in range(self.ops):
            back = [(column, -float(launches.transfer)) for (_, at), column in self.issue.items() if at == op]
            last = launches.tail[op] - given.time[op]
            self._at_least("launched", [(host.after[op], 1), (host.before[op], -1), *back], launches.host[op])
            self._at_least("host_limited", [(self.start[op], 1), (host.after[op], -1)], last)
            if op:
                sent = [(self.swapped[t], -float(launches.transfer)) for t, a in enumerate(given.first) if a == op - 1]
                self._at_least("issued", [(host.before[op], 1), (host.after[op - 1], -1), *sent], 0)
                if op - 1 in launches.waiting:
                    end = [(host.before[op], 1.0), (self.start[op - 1], -1.0), *sent]
                    self._at_least("awaited", end, given.time[op - 1])
        for tensor in range(self.tensors):
            self._issuing(host, tensor)

    def _issuing(self, host: "_Host", tensor: int) -> None:
        """(X11) A transfer begins when the host has issued it, behind all that it issued before."""
        given, big, issuing = self.given, self.big, host.costs.transfer
        first, swapped, sent, back = given.first[tensor], self.swapped[tensor], host.out[tensor], host.back[tensor]
        self._at_least("sent", [(sent, 1), (host.after[first], -1), (swapped, -big)], issuing - big)
        if first in host.costs.waiting:
            awaited = given.time[first] + issuing
            self._at_least("sent", [(sent, 1), (self.start[first], -1), (swapped, -big)], awaited - big)
        self._at_least(
            "leave_issued", [(self.out[tensor], 1), (sent, -1), (swapped, -big)], given.out_time[tensor] - big
        )
        self._at_least(
            "back_issued", [(self.back[tensor], 1), (back, -1), (swapped, -big)], given.in_time[tensor] - big
        )
        for op in range(first + 1, given.last[tensor] + 1):
            column = self.issue[tensor, op]
            self._at_least("called", [(back, 1), (host.before[op], -1), (column, -big)], issuing - big)

    def _memory(self, op: int) -> None:
        """(X9) At each op that lacks memory, tensors that have left and return later cover the need."""
        terms = []
        for tensor in range(self.tensors):
            if self.given.first[tensor] < op < self.given.last[tensor]:
                absent = self.builder.binary(name=f"absent.{tensor}.{op}")
                later = [(self.issue[tensor, k], 1.0) for k in range(op + 1, self.given.last[tensor] + 1)]
                self._at_least("absent", [*later, (absent, -1)], 0)
                self._at_least("gone", [(self.ready[op], 1), (self.out[tensor], -1), (absent, -self.big)], -self.big)
                terms.append((absent, float(self.given.size[tensor])))
        self._at_least("memory", terms, self.given.need[op])

    def _host_room(self, room: HostRoom) -> None:
        """(X12) What is on the host after an op fits: pool by pool, as memory is shared within a pool only."""
        budget = min(room.budget, sum(room.size))
        pools = []
        for together in room.peaks():
            column = self.builder.column(0, budget, integer=True, name="held")
            pools.append((column, -1.0))
            for group in together:
                terms = [(int(self.swapped[tensor]), -float(room.size[tensor])) for tensor in group]
                self._at_least("held", [(column, 1.0), *terms], 0)
        self._at_least("host_room", pools, -budget)
