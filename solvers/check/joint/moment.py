"""The relaxation of a `joint` problem at one moment, columns and rows by key (README of solvers/joint, model M).

The moment is right after op q has been allocated in its first stage. Times are in ticks: µs, or ns where the link
counts those. Only what a certificate names is made.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from solvers.check.keyed import Column, Keyed, Row
from solvers.ir.joint import JointProblem

MOST = 2**80
"""More ticks than any step takes: problems whose step may exceed 2⁵³ µs, 1,000 ticks each at most, are refused."""


class Moment:
    """The relaxation at stage `q`; `counts`: columns of which each is 0 or 1, no column twice in one, to be summed."""

    def __init__(self, problem: JointProblem, q: int, counts: Sequence[Sequence[str]] = ()) -> None:
        self.problem, self.ops, self.q, self.counts = problem, problem.ops, q, counts
        self.unit = 1 if problem.link.latency_ns is None else 1000
        self.before = [0, *accumulate(op.time_us * self.unit for op in self.ops)]
        self.first: dict[int, int] = {}  # the first op behind the moment that reads an output from before it
        for s in range(len(self.ops) - 1, q, -1):
            self.first.update((i, s) for i in self.ops[s].inputs if i <= q)
        self.windows = [op.time_us for op in self.ops[q + 1 :] if op.comm]
        self.columns = Keyed[Column](
            {"keep": (1, self._keep), "again": (1, self._again), "hide": (1, self._hide), "swap": (1, self._swap)}
            | {"wait": (0, self._wait), "late": (0, self._wait), "count": (1, self._count)}
        )
        self.rows = Keyed[Row](
            {
                "need": (1, self._need),
                "source": (2, self._source),
                "memory": (1, self._memory),
                "out": (1, self._out),
                "in": (1, self._in),
                "step": (0, self._step),
                "window": (1, self._window),
                "sum": (1, self._sum),
            }
        )

    # -- columns

    def _made(self, i: int) -> bool:
        return i <= self.q

    def _keep(self, i: int) -> Column | None:
        """In memory at the moment, leaving included."""
        return Column(1) if self._made(i) else None

    def _again(self, i: int) -> Column | None:
        """Computed again behind the moment, not only behind communication."""
        return Column(1) if self._made(i) and self.ops[i].replay else None

    def _hide(self, i: int) -> Column | None:
        """Computed again behind the moment, behind communication only, which takes as long at least."""
        if self._again(i) is None or self.ops[i].comm:
            return None
        return Column(1) if any(self.ops[i].time_us <= window for window in self.windows) else None

    def _swap(self, i: int) -> Column | None:
        """On the host at the moment, and neither in memory nor computed again behind it."""
        return Column(1) if i < self.q else None

    def _wait(self) -> Column:
        """How much later than with unlimited memory stage q begins, or the step ends (that one costs its time)."""
        return Column(MOST, integer=False)

    def _count(self, number: int) -> Column | None:
        """How many of the columns summed are 1."""
        return Column(len(self.counts[number])) if number < len(self.counts) else None

    # -- rows

    def _sum(self, number: int) -> Row | None:
        """What a count is the sum of."""
        if self._count(number) is None:
            return None
        return Row(0, 0, dict.fromkeys(self.counts[number], 1) | {f"count/{number}": -1})

    def _there(self, i: int) -> dict[str, int]:
        """The columns of which one is 1 if op i's output is read behind the moment."""
        names = ("keep", "again", "hide", "swap")
        return {key: 1 for key in (f"{name}/{i}" for name in names) if self.columns.get(key) is not None}

    def _runs(self, i: int) -> list[str]:
        """The columns of which one is 1 if op i is computed again behind the moment."""
        return [key for key in (f"again/{i}", f"hide/{i}") if self.columns.get(key) is not None]

    def _need(self, i: int) -> Row | None:
        """What is read behind the moment was in memory, is computed again, or returns."""
        return Row(1, None, self._there(i)) if i in self.first else None

    def _source(self, i: int, j: int) -> Row | None:
        """So are the inputs of what is computed again."""
        if self.columns.get(f"again/{i}") is None or j not in self.ops[i].inputs:
            return None
        return Row(0, None, self._there(j) | dict.fromkeys(self._runs(i), -1))

    def _memory(self, grain: int) -> Row | None:
        """What is in memory at the moment fits beside the op: its own output and inputs are there.

        In whole pieces of so many bytes: what is left of a piece counts neither of outputs nor of the room.
        """
        if grain < 1:
            return None
        room = self.problem.budget_bytes - self.problem.static_bytes - self.ops[self.q].workspace_bytes
        here = {self.q, *self.ops[self.q].inputs}
        room -= sum(self.ops[i].output_bytes for i in here)
        others = {f"keep/{i}": self.ops[i].output_bytes // grain for i in range(self.q) if i not in here}
        return Row(None, room // grain, others)

    def _out(self, e: int) -> Row | None:
        """What op e or a later one made left between the end of stage e and the moment."""
        if e >= self.q:
            return None
        gone = {f"swap/{i}": -self._time(i, self.problem.link.out_bytes_per_s) for i in range(e, self.q)}
        return Row(self.before[e + 1] - self.before[self.q], None, gone | {"wait": 1})

    def _in(self, s: int) -> Row | None:
        """What stage s or an earlier one reads returned between the end of stage q and the start of stage s.

        For the last stage, everything: whatever returns is read.
        """
        if not self.q < s < len(self.ops):
            return None
        last = len(self.ops) - 1
        back = {
            f"swap/{i}": -self._time(i, self.problem.link.in_bytes_per_s)
            for i in range(self.q)
            if s == last or self.first.get(i, last) <= s
        }
        return Row(self.before[self.q + 1] - self.before[s], None, back | {"late": 1, "wait": -1})

    def _step(self) -> Row:
        """The stages from q on take their own time, and that of what is computed again and not hidden."""
        again = {
            f"again/{i}": -self.ops[i].time_us * self.unit
            for i in range(self.q + 1)
            if self.columns.get(f"again/{i}") is not None
        }
        return Row(0, None, again | {"late": 1, "wait": -1})

    def _window(self, grain: int) -> Row | None:
        """What is hidden takes no longer than the communication behind which it is, in whole pieces of so many µs."""
        if grain < 1:
            return None
        hidden = {
            f"hide/{i}": self.ops[i].time_us // grain
            for i in range(self.q + 1)
            if self.columns.get(f"hide/{i}") is not None
        }
        return Row(None, sum(window // grain for window in self.windows), hidden)

    def _time(self, i: int, bytes_per_s: int) -> int:
        link = self.problem.link
        latency = link.latency_us if link.latency_ns is None else link.latency_ns
        latency *= self.ops[i].copies
        return latency + math.ceil(Fraction(self.ops[i].output_bytes * 10**6 * self.unit, bytes_per_s))
