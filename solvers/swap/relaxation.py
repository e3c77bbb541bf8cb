"""A lower bound, and a good guess at the selection: transfers as fluids (README, model F).

Every plan (formats.md 3) gives a point of this model, so its optimum is a valid bound; the proof stands in the
room's README.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.engines import LinearModel, ModelBuilder
from solvers.swap.evaluate import Instance
from solvers.swap.host import HostRoom
from solvers.swap.launches import Launches

POINTS = 4000
"""The most ops that keep rows of their own; of a longer sequence the others are dropped (still a relaxation)."""

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fluid:
    """The model, the columns of the selection, and the scale of its objective (ticks a unit)."""

    model: LinearModel
    selection: Integers
    unit: float

    def bound_ticks(self, bound: float) -> float:
        """A bound of the model in ticks."""
        return bound * self.unit


def fluid(given: Instance, horizon: int, integral: bool = False, most: int | None = None) -> Fluid:
    """Build model F; `horizon` is a makespan that some plan reaches, so no optimal time lies beyond it.

    With `most` about that many ops keep rows of their own: a coarse model, a relaxation of the whole one.
    """
    points = None if most is None else coarse_points(given, most)
    return FluidBuilder(given, horizon, integral, points).build()


def span(given: Instance) -> int:
    """The number of ops from the first use of a tensor to the last: those that may have rows."""
    return max(given.last) - min(given.first) + 1


def coarse_points(given: Instance, most: int) -> Integers:
    """The first and the last use, the largest need, and others at even distances in time, `most` in all or a few more.

    A gap loosens the model by the time that it takes at the most, so even times are better than even numbers of ops.
    """
    low, high = min(given.first), max(given.last)
    if high - low < most:
        return np.arange(low, high + 1)
    ends = np.array(given.before)
    even = np.searchsorted(ends, np.linspace(ends[low], ends[high], most))
    heaviest = max(range(low, high + 1), key=given.need.__getitem__)
    return np.unique(np.clip([low, heaviest, high, *even], low, high))


def _points(given: Instance) -> Integers:
    uses = {*given.first, *given.last}
    low, high = min(uses), max(uses)
    if high - low < POINTS:
        return np.arange(low, high + 1)
    heaviest = sorted(given.busy, key=lambda op: -given.need[op])[:POINTS]
    return np.array(sorted({*uses, *heaviest}))


def _power_of_two(value: float) -> float:
    """The scale is a power of two, so that scaled integers stay exact."""
    return float(2.0 ** math.ceil(math.log2(max(1.0, value))))


class FluidBuilder:
    """One column family and one row family a method, in the README's order."""

    def __init__(self, given: Instance, horizon: int, integral: bool, points: Integers | None = None) -> None:
        self.given, self.points = given, _points(given) if points is None else points
        self.count = len(self.points)
        self.builder = ModelBuilder("swap-fluid")
        self.unit_bytes = _power_of_two(max(given.size))
        self.unit_time = _power_of_two(max(given.out_time))
        self.size = np.array(given.size) / self.unit_bytes
        self.need = np.array(given.need)[self.points] / self.unit_bytes
        self.before = np.array(given.before)[self.points] / self.unit_time
        self.time = np.array(given.time)[self.points] / self.unit_time
        self.out_rate = self._rate(given.out_time)
        self.in_rate = self._rate(given.in_time)
        total, last = float(self.size.sum()), horizon / self.unit_time
        add = self.builder.columns
        self.z = add(len(given.size), 0, 1, integer=integral, name="swap")
        self.horizon = last
        self.ready, self.start = (add(self.count, 0, last, name=name) for name in ("ready", "start"))
        self.out_ready, self.out_end = (add(self.count, 0, total, name=name) for name in ("out_ready", "out_end"))
        self.issued = add(self.count, 0, total, name="issued")
        self.in_ready, self.in_start = (add(self.count, 0, total, name=name) for name in ("in_ready", "in_start"))
        self.freed, self.due = (add(self.count, 0, total, name=name) for name in ("freed", "due"))

    def build(self) -> Fluid:
        """All rows, and the objective: the start of the last op and what follows it."""
        self._clock()
        self._volumes()
        self._out_lane()
        self._in_lane()
        self._memory()
        if self.given.host is not None:
            self._host_room(self.given.host)
        rest = (self.given.before[-1] - self.given.before[int(self.points[-1])]) / self.unit_time
        if self.given.launches is None:
            self.builder.add_cost([int(self.start[-1])], [1.0])
            self.builder.add_offset(rest)
        else:
            self._end(self._host(self.given.launches), self.given.launches, rest)
        return Fluid(self.builder.build(), self.z, self.unit_time)

    def _rate(self, transfer_time: list[int]) -> float:
        """The fastest that any tensor travels, rounded up; one that takes no time has no bytes."""
        best = max(size / time for size, time in zip(self.given.size, transfer_time, strict=True) if time)
        return math.nextafter(best * self.unit_time / self.unit_bytes, math.inf)

    def _rows(
        self,
        name: str,
        terms: list[tuple[Integers, float | Array]],
        lower: float | Array = -np.inf,
        upper: float | Array = np.inf,
    ) -> None:
        """One row a point: Σ coefficient · column, for columns given as arrays of equal length."""
        length = len(terms[0][0])
        rows = np.concatenate([np.arange(length)] * len(terms))
        values = np.concatenate([np.broadcast_to(np.asarray(value, dtype=np.float64), (length,)) for _, value in terms])
        columns = np.concatenate([column for column, _ in terms])
        self.builder.rows(rows, columns, values, lower, upper, name, count=length)

    def _clock(self) -> None:
        """(F1) An op starts when it is ready, and is ready when the ops before it have run."""
        self._rows("start", [(self.start, 1.0), (self.ready, -1.0)], lower=0.0)
        self._rows("first", [(self.ready[:1], 1.0)], lower=self.before[:1])
        self._rows("next", [(self.ready[1:], 1.0), (self.start[:-1], -1.0)], lower=np.diff(self.before))

    def _volumes(self) -> None:
        """(F2) What has become free to leave before an op, and what is due at its start."""
        place = np.searchsorted(self.points, np.array(self.given.first), side="right")  # a use may lie between points
        self._cumulate("freed", self.freed, place)
        self._cumulate("due", self.due, np.searchsorted(self.points, np.array(self.given.last)))

    def _cumulate(self, name: str, total: Integers, place: Integers, amount: Array | None = None) -> None:
        """`total` at a point is the amount (bytes unless given) of the tensors chosen whose place is no later."""
        amount = self.size if amount is None else amount
        inside = place < self.count
        rows = np.concatenate([np.arange(self.count), np.arange(1, self.count), place[inside]])
        columns = np.concatenate([total, total[:-1], self.z[inside]])
        values = np.concatenate([np.ones(self.count), -np.ones(self.count - 1), -amount[inside]])
        self.builder.rows(rows, columns, values, 0.0, 0.0, name, count=self.count)

    def _out_lane(self) -> None:
        """(F3) The out lane moves at most its rate, and only what was freed."""
        rate = self.out_rate
        self._rows(
            "out_during",
            [(self.out_end, 1.0), (self.out_ready, -1.0), (self.start, -rate), (self.ready, rate)],
            upper=rate * self.time,
        )
        self._rows(
            "out_between",
            [(self.out_ready[1:], 1.0), (self.out_end[:-1], -1.0), (self.ready[1:], -rate), (self.start[:-1], rate)],
            upper=-rate * self.time[:-1],
        )
        self._rows("out_freed_ready", [(self.out_ready, 1.0), (self.freed, -1.0)], upper=0.0)
        self._rows("out_freed_end", [(self.out_end, 1.0), (self.freed, -1.0)], upper=0.0)

    def _in_lane(self) -> None:
        """(F4) The in lane moves at most its rate, only what was issued, and what an op reads before it starts."""
        rate = self.in_rate
        self._rows("in_first", [(self.in_ready[:1], 1.0)], upper=0.0)
        self._rows("issue", [(self.issued[1:], 1.0), (self.issued[:-1], -1.0)], lower=0.0)
        self._rows(
            "in_between",
            [(self.in_ready[1:], 1.0), (self.in_start[:-1], -1.0), (self.ready[1:], -rate), (self.start[:-1], rate)],
            upper=0.0,
        )
        adjacent = np.diff(self.points) == 1
        source = np.where(adjacent, self.issued[:-1], self.issued[1:])
        self._rows("in_issued_ready", [(self.in_ready[1:], 1.0), (source, -1.0)], upper=0.0)
        self._rows(
            "in_during",
            [(self.in_start, 1.0), (self.in_ready, -1.0), (self.start, -rate), (self.ready, rate)],
            upper=0.0,
        )
        self._rows("in_issued_start", [(self.in_start, 1.0), (self.issued, -1.0)], upper=0.0)
        self._rows("in_due", [(self.in_start, 1.0), (self.due, -1.0)], lower=0.0)

    def _memory(self) -> None:
        """(F5) When an op is ready, what has left and was not issued to return covers its need."""
        self._rows("memory", [(self.out_ready, 1.0), (self.issued, -1.0)], lower=self.need)

    def _host_room(self, room: HostRoom) -> None:
        """(F8) What is on the host after an op fits: pool by pool, as memory is shared within a pool only."""
        size = np.array(room.size) / self.unit_bytes
        budget = min(room.budget / self.unit_bytes, float(size.sum()))
        pools = [int(self.builder.column(0, budget, name="held")) for _ in range(len(set(room.pool)))]
        for column, together in zip(pools, room.peaks(), strict=True):
            for group in together:
                columns, values = np.array([*self.z[group], column]), np.array([*size[group], -1.0])
                self.builder.row(columns, values, upper=0.0, name="held")
        self.builder.row(np.array(pools), 1.0, upper=budget, name="host_room")

    def _host(self, launches: Launches) -> Integers:
        """(F6) When the host has launched each op: after the ops before it, and the transfers issued meanwhile.

        An op ends no earlier than its tail after that. Between ops that are kept stand the launches of those dropped.
        """
        add, issuing = self.builder.columns, launches.transfer / self.unit_time
        whole = float(len(self.given.size))
        host = add(self.count, 0, self.horizon, name="host")
        calls, due = (add(self.count, 0, whole, name=name) for name in ("calls", "due_calls"))
        sent = add(self.count, 0, whole, name="sent")
        one = np.ones_like(self.size)
        self._cumulate("sent", sent, np.searchsorted(self.points, np.array(self.given.first), side="right"), one)
        self._cumulate("due_calls", due, np.searchsorted(self.points, np.array(self.given.last)), one)
        self._rows("called", [(calls, 1.0), (due, -1.0)], lower=0.0)
        self._rows("calls", [(calls[1:], 1.0), (calls[:-1], -1.0)], lower=0.0)
        before = np.array(launches.host_before)[self.points + 1] / self.unit_time
        unswapped = np.array(self.given.unswapped) / self.unit_time
        meanwhile = [(calls[1:], -issuing), (calls[:-1], issuing), (sent[1:], -issuing), (sent[:-1], issuing)]
        self._rows("host_first", [(host[:1], 1.0)], lower=before[:1])
        self._rows("host_next", [(host[1:], 1.0), (host[:-1], -1.0), *meanwhile], lower=np.diff(before))
        awaited = np.isin(self.points[:-1], sorted(launches.waiting))
        if awaited.any():
            rows: list[tuple[Integers, float | Array]] = [
                (columns[awaited], value) for columns, value in [(host[1:], 1.0), *meanwhile]
            ]
            rows.append((self.start[:-1][awaited], -1.0))
            self._rows("host_waits", rows, lower=np.diff(before)[awaited] + self.time[:-1][awaited])
        tail = np.array(launches.tail)[self.points] / self.unit_time
        self._rows("host_limited", [(self.start, 1.0), (host, -1.0)], lower=tail - self.time)
        self._rows("unswapped", [(self.start, 1.0)], lower=unswapped[self.points + 1] - self.time)
        return host

    def _end(self, host: Integers, launches: Launches, rest: float) -> None:
        """(F7) The step ends after the last op kept and what follows it, on the device and as the host launches it."""
        last = int(self.points[-1])
        end = int(self.builder.columns(1, self.given.base / self.unit_time, self.horizon, name="end")[0])
        self.builder.add_cost([end], [1.0])
        self.builder.row([end, int(self.start[-1])], [1.0, -1.0], lower=rest, name="end")
        follows = launches.following(self.given.time, last) / self.unit_time
        self.builder.row([end, int(host[-1])], [1.0, -1.0], lower=follows, name="host_end")
        if last in launches.waiting:
            own = float(self.time[-1])
            self.builder.row([end, int(self.start[-1])], [1.0, -1.0], lower=own + follows, name="host_waits_end")
