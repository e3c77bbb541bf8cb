"""The relaxation of a stretch of stages of a `joint` problem, by key (README of solvers/joint, model T).

Between stage `first`, of which only the end counts, and `last` every stage is a moment. Times are in ticks: µs, or ns
where the link counts those. Only what a certificate names is made.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

from solvers.check.joint.moment import MOST
from solvers.check.keyed import Column, Keyed, Row
from solvers.ir.joint import JointProblem

Weights = dict[str, int]


class Stretch:
    """The relaxation of stages `first` to `last`."""

    def __init__(self, problem: JointProblem, first: int, last: int) -> None:
        self.problem, self.ops, self.first, self.last = problem, problem.ops, first, last
        self.unit = 1 if problem.link.latency_ns is None else 1000
        self.whole = problem.budget_bytes - problem.static_bytes
        self.needs: dict[int, frozenset[int]] = {}
        self.rooms: dict[int, int] = {}
        self.columns = Keyed[Column](
            {name: (1, self._waiting) for name in ("wait", "stall", "more")}
            | {"keep": (2, self._keep), "host": (2, self._host), "again": (2, self._again)}
            | {"come": (2, self._come), "ahead": (2, self._ahead), "leave": (2, self._leave), "ever": (2, self._ever)}
        )
        rows: dict[str, tuple[int, Callable[..., Row | None]]] = {
            "fit": (2, self._fit), "both": (1, self._both), "run": (1, self._run), "in": (1, self._in),
            "early": (1, self._early), "out": (1, self._out), "last": (1, self._last), "read": (2, self._read),
            "hold": (2, self._hold), "away": (2, self._away), "stay": (2, self._stay), "one": (2, self._one),
            "source": (3, self._source), "sum": (2, self._sum), "use": (2, self._use), "root": (3, self._root),
            "jam": (5, self._jam), "beside": (3, self._beside),
        }  # fmt: skip
        self.rows = Keyed[Row](rows)

    # -- columns

    def _inside(self, q: int) -> bool:
        return self.first < q <= self.last

    def _waiting(self, q: int) -> Column | None:
        """From the end of the stage before until q is ready; until it starts; of the stage beyond its op's own time."""
        return Column(MOST, cost_us=1, integer=False) if self._inside(q) else None

    def _keep(self, i: int, q: int) -> Column | None:
        """The share in memory at op q: of what returns, what has when the next stage is ready; less what has left."""
        if not (self.first <= q < self.last and i <= q):
            return None
        return Column(1, integer=False) if i in self._need(q) or self._size(i) <= self._room(q) else None

    def _host(self, i: int, q: int) -> Column | None:
        """The share that has left when stage q is ready, and has not returned when the next one is."""
        there = self.first <= q < self.last and i < q and i not in self._need(q)
        return Column(1, integer=False) if there else None

    def _again(self, i: int, q: int) -> Column | None:
        """1 where op i runs again in stage q."""
        if not (self._inside(q) and i < q and self.ops[i].replay and q >= self.problem.replays_from):
            return None
        return None if self.ops[i].comm and self.ops[q].comm else Column(1)

    def _come(self, i: int, q: int) -> Column | None:
        """The share that returns from when stage q is ready until it starts."""
        return Column(1, integer=False) if self._inside(q) and i < q else None

    def _ahead(self, i: int, q: int) -> Column | None:
        """The share that returns from the start of stage q until the next one is ready."""
        if not (self._inside(q) and i < q and i not in self._need(q)) or self._keep(i, q) is None:
            return None
        return Column(1, integer=False)

    def _leave(self, i: int, q: int) -> Column | None:
        """The share that leaves from when the stage before q is ready until q is."""
        if not (self._inside(q) and i < q) or self._keep(i, q - 1) is None:
            return None
        return Column(1, integer=False)

    def _ever(self, i: int, p: int) -> Column | None:
        """1 where op i runs again in a stage behind p."""
        there = self.first <= p < self.last and i <= p
        runs = there and any(self._has("again", i, q) for q in range(p + 1, self.last + 1))
        return Column(1) if runs else None

    # -- what rows are made of

    def _need(self, q: int) -> frozenset[int]:
        if q not in self.needs:
            self.needs[q] = frozenset((q, *self.ops[q].inputs))
        return self.needs[q]

    def _size(self, i: int) -> int:
        return self.ops[i].output_bytes

    def _room(self, q: int) -> int:
        """What is left beside op q with its inputs and workspace."""
        if q not in self.rooms:
            self.rooms[q] = self.whole - self.ops[q].workspace_bytes - sum(map(self._size, self._need(q)))
        return self.rooms[q]

    def _free(self, i: int, q: int) -> int:
        """What is left at most while op i runs again in stage q."""
        buffer = self._size(q) + self.ops[q].workspace_bytes if self.ops[q].comm else 0
        return self.whole - self.ops[i].workspace_bytes - buffer - sum(map(self._size, self._need(i)))

    def _time(self, q: int) -> int:
        return self.ops[q].time_us * self.unit

    def _transfer(self, i: int, bytes_per_s: int) -> int:
        link = self.problem.link
        latency = link.latency_us if link.latency_ns is None else link.latency_ns
        latency *= self.problem.ops[i].copies
        return latency + math.ceil(Fraction(self._size(i) * 10**6 * self.unit, bytes_per_s))

    def _outs(self, outputs: Iterable[int], q: int) -> Weights:
        return {f"leave/{i}/{q}": -self._transfer(i, self.problem.link.out_bytes_per_s) for i in outputs}

    def _ins(self, name: str, q: int) -> Weights:
        return {f"{name}/{i}/{q}": -self._transfer(i, self.problem.link.in_bytes_per_s) for i in range(q)}

    def _lower(self, side: int, weights: Weights) -> Row:
        return Row(side, None, self._known(weights))

    def _upper(self, side: int, weights: Weights) -> Row:
        return Row(None, side, self._known(weights))

    def _known(self, weights: Weights) -> Weights:
        return {key: weight for key, weight in weights.items() if weight and self.columns.get(key) is not None}

    def _has(self, name: str, i: int, q: int) -> bool:
        return self.columns.get(f"{name}/{i}/{q}") is not None

    # -- rows of one stage

    def _fit(self, grain: int, q: int) -> Row | None:
        """What is in memory at op q fits beside it, in whole pieces of so many bytes."""
        if grain < 1 or not self.first <= q < self.last:
            return None
        others = {f"keep/{i}/{q}": self._size(i) // grain for i in range(q) if i not in self._need(q)}
        return self._upper(self._room(q) // grain, others)

    def _both(self, i: int) -> Row | None:
        """At the first stage: what has left is not in memory."""
        q = self.first
        return self._upper(1, {f"keep/{i}/{q}": 1, f"host/{i}/{q}": 1}) if self._has("host", i, q) else None

    def _run(self, q: int) -> Row | None:
        """What runs again takes its time, or fits into the communication that it runs beside."""
        if not self._inside(q):
            return None
        again = {f"again/{i}/{q}": self._time(i) for i in range(q)}
        if self.ops[q].comm:
            return self._upper(self._time(q), again)
        return self._lower(0, {key: -time for key, time in again.items()} | {f"more/{q}": 1})

    def _in(self, q: int) -> Row | None:
        """What returns from when stage q is ready until it starts."""
        return self._lower(0, self._ins("come", q) | {f"stall/{q}": 1}) if self._inside(q) else None

    def _early(self, q: int) -> Row | None:
        """What returns from the start of stage q until the next one is ready."""
        if not self._inside(q) or q == self.last:
            return None
        return self._lower(-self._time(q), self._ins("ahead", q) | {f"more/{q}": 1, f"wait/{q + 1}": 1})

    def _out(self, q: int) -> Row | None:
        """What leaves from when one stage is ready until the next one is."""
        if not self._inside(q) or q == self.first + 1:
            return None
        since = {f"stall/{q - 1}": 1, f"more/{q - 1}": 1, f"wait/{q}": 1}
        return self._lower(-self._time(q - 1), self._outs(range(q), q) | since)

    def _last(self, q: int) -> Row | None:
        """What op q − 1 made or read has not begun to leave before it has ended."""
        return self._lower(0, self._outs(self._need(q - 1), q) | {f"wait/{q}": 1}) if self._inside(q) else None

    # -- rows of one output

    def _found(self, j: int, q: int) -> Weights:
        """The columns of which one is 1 where an op of stage q, not its own communication, reads op j's output."""
        return {f"keep/{j}/{q - 1}": 1, f"come/{j}/{q}": 1, f"again/{j}/{q}": 1}

    def _read(self, j: int, q: int) -> Row | None:
        if not self._inside(q) or j not in self.ops[q].inputs:
            return None
        found = self._found(j, q)
        if self.ops[q].comm:
            del found[f"again/{j}/{q}"]
        return self._lower(1, found)

    def _source(self, i: int, j: int, q: int) -> Row | None:
        """What runs again has its inputs."""
        if not self._has("again", i, q) or j not in self.ops[i].inputs:
            return None
        return self._lower(0, self._found(j, q) | {f"again/{i}/{q}": -1})

    def _hold(self, i: int, q: int) -> Row | None:
        """In memory is what was, runs again, or has returned, less what has left."""
        if not self._has("keep", i, q) or not self._inside(q) or i == q:
            return None
        gone = {f"keep/{i}/{q}": 1, f"leave/{i}/{q}": 1}
        there = {f"keep/{i}/{q - 1}": -1, f"again/{i}/{q}": -1, f"come/{i}/{q}": -1, f"ahead/{i}/{q}": -1}
        return self._upper(0, gone | there)

    def _away(self, i: int, q: int) -> Row | None:
        """On the host is what was, or has left, less what has returned."""
        if not self._has("come", i, q):
            return None
        back = {f"host/{i}/{q}": 1, f"come/{i}/{q}": 1, f"ahead/{i}/{q}": 1}
        return self._upper(0, back | {f"host/{i}/{q - 1}": -1, f"leave/{i}/{q}": -1})

    def _stay(self, i: int, q: int) -> Row | None:
        """What leaves was in memory."""
        return self._upper(0, {f"leave/{i}/{q}": 1, f"keep/{i}/{q - 1}": -1}) if self._has("leave", i, q) else None

    def _one(self, i: int, q: int) -> Row | None:
        """What is away does not run again."""
        if not self._has("again", i, q):
            return None
        return self._upper(1, {f"again/{i}/{q}": 1, f"host/{i}/{q - 1}": 1, f"leave/{i}/{q}": 1})

    # -- rows of all that runs again behind a stage

    def _sum(self, i: int, p: int) -> Row | None:
        if not self._has("ever", i, p):
            return None
        runs = {f"again/{i}/{q}": 1 for q in range(p + 1, self.last + 1)}
        return self._lower(0, runs | {f"ever/{i}/{p}": -1})

    def _there(self, i: int, p: int) -> Weights:
        """The columns of which the sum is 1 where a stage behind p finds what op i made by then."""
        return {f"keep/{i}/{p}": 1, f"host/{i}/{p}": 1, f"ever/{i}/{p}": 1}

    def _use(self, i: int, p: int) -> Row | None:
        """What is read behind stage p was there or on the host, or runs again."""
        if not (self.first <= p < self.last and i <= p):
            return None
        read = any(i in self.ops[q].inputs for q in range(p + 1, self.last + 1))
        return self._lower(1, self._there(i, p)) if read else None

    def _root(self, i: int, j: int, p: int) -> Row | None:
        """So are the inputs of what runs again."""
        if not self._has("ever", i, p) or j not in self.ops[i].inputs:
            return None
        return self._lower(0, self._there(j, p) | {f"ever/{i}/{p}": -1})

    # -- rows of what a recomputation needs

    def _jam(self, i: int, k: int, q: int, j: int, m: int) -> Row | None:
        """Op i does not run again beside outputs j and m, for which there is no room then.

        Op k, which runs later in the stage, or op q reads them; those before i are in memory if they are there at all,
        those behind it unless they run again, too.
        """
        if not self._has("again", i, q) or not i < k <= q or (k < q and not self._has("again", k, q)):
            return None
        read = (set(self.ops[k].inputs) | set(self.ops[q].inputs)) - self._need(i)
        if not {j, m} <= read or sum(map(self._size, {j, m})) <= self._free(i, q):
            return None
        weights = {f"again/{i}/{q}": 1} | ({f"again/{k}/{q}": 1} if k < q else {})
        for one in {j, m}:
            if one > i:
                key = f"again/{one}/{q}"
                weights[key] = weights.get(key, 0) - 1
        return self._upper(int(k < q), weights)

    def _beside(self, grain: int, i: int, q: int) -> Row | None:
        """While op i runs again, what op q reads and what stays through the stage fits beside it, in whole pieces."""
        if grain < 1 or not self._has("again", i, q):
            return None
        mine, need = self._need(i), self._need(q)
        sooner = [j for j in self.ops[q].inputs if j < i and j not in mine]
        later = {j: self._size(j) // grain for j in self.ops[q].inputs if j > i and j not in mine}
        free = max(-1, self._free(i, q) - sum(map(self._size, set(sooner))))
        most = self._room(q) // grain
        weights = {f"keep/{j}/{q}": self._size(j) // grain for j in range(i) if j not in mine | need}
        weights |= {f"again/{j}/{q}": -pieces for j, pieces in later.items()}
        weights[f"again/{i}/{q}"] = most + sum(later.values()) - free // grain
        return self._upper(most, weights)
