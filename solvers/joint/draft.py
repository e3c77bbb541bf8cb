"""A decision in the making: what is computed again in which stage, and what leaves; its exact meaning.

Given the recomputations, the least retention follows (README, (R)): each output is kept from its latest computation to
its last read before the next one, less the stages in which it is away. Every solver of this room measures its plans
with `measure`; the independent judge has its own recursion.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from solvers.ir.errors import InvalidProblem
from solvers.ir.joint import JointPlan, JointSwap
from solvers.joint.given import Given
from solvers.recompute.graph.replay import MOST_PAIRS, replay_runs, retained


class Away(NamedTuple):
    """Op `op`'s output leaves after stage `out_after` and returns to stage `in_at`."""

    op: int
    out_after: int
    in_at: int


@dataclass(frozen=True)
class Draft:
    """`again[t]`: the ops i < t computed again in stage t. `away`: what leaves, in the order of the lanes."""

    again: Sequence[Collection[int]]
    away: tuple[Away, ...] = ()


@dataclass(frozen=True)
class Kept:
    """What a draft keeps where nothing is away; `fault` is what is wrong with its recomputations.

    `runs[t]`: op i computed in stage t → the last stage that finds it; `touched[i]`: the stages that compute or read op
    i, in order; `peaks`: the most bytes in use by stage; `ticks`: how long each stage takes.
    """

    runs: list[dict[int, int]]
    touched: list[list[int]]
    peaks: list[int]
    ticks: list[int]
    fault: str | None

    def gap(self, i: int, stage: int) -> tuple[int, int] | None:
        """The stages that touch op i's output right before and right after a stage that only keeps it; None else."""
        stages = self.touched[i]
        place = bisect_left(stages, stage)
        if place in (0, len(stages)) or stages[place] == stage or i in self.runs[stages[place]]:
            return None
        return stages[place - 1], stages[place]


@dataclass(frozen=True)
class Measured:
    """What a draft does: its end in ticks, its most bytes in use by stage, and its first violation, None where valid.

    `ready`, `start`, `end`: by stage, when memory and lanes were there, when it began, when it ended; `out` and `back`:
    start and end of the transfers by place in `away`.
    """

    objective_us: int
    peaks: list[int]
    violation: str | None
    ready: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    out: list[tuple[int, int]] = field(default_factory=list)
    back: list[tuple[int, int]] = field(default_factory=list)


def kept_of(given: Given, again: Sequence[Collection[int]]) -> Kept:
    """What the recomputations make the stages keep, all memory and no link."""
    graph = given.graph
    runs = retained(graph, again)
    found = replay_runs(graph, runs)
    touched: list[list[int]] = [[] for _ in runs]
    ticks = []
    for t, run in enumerate(runs):
        for i in {j for ran in run for j in (ran, *graph.inputs[ran])}:
            touched[i].append(t)
        ticks.append(given.time[t] if graph.comm[t] or len(run) == 1 else sum(given.time[i] for i in run))
    peaks = _peaks(given, runs) if any(given.workspace) else found.peaks
    return Kept(runs, touched, peaks, ticks, found.violation)


def _peaks(given: Given, runs: Sequence[dict[int, int]]) -> list[int]:
    """The most bytes in use by stage, workspaces included."""
    size = given.graph.size
    level, peaks = given.problem.static_bytes, list[int]()
    kept, ends = dict[int, int](), [list[int]() for _ in runs]
    for t, run in enumerate(runs):
        peaks.append(max(level, level + size[t] + given.workspace[t] if len(run) == 1 else _peak(given, t, run, kept)))
        for i, until in run.items():
            level += 0 if i in kept else size[i]
            kept[i] = until
            ends[until].append(i)
        for i in ends[t]:
            if kept.get(i) == t:
                del kept[i]
                level -= size[i]
    return peaks


def _peak(given: Given, t: int, run: dict[int, int], kept: dict[int, int]) -> int:
    """The most bytes in use while these ops run in a stage, beside what is kept."""
    graph, order = given.graph, sorted(run)
    last = {j: i for i in order for j in (*graph.inputs[i], i)}
    level = peak = given.problem.static_bytes + sum(graph.size[i] for i in kept)
    for i in order:
        level += graph.size[i]
        buffer = graph.size[t] + given.workspace[t] if graph.comm[t] and i < t else 0
        peak = max(peak, level + buffer + given.workspace[i])
        level -= sum(graph.size[j] for j in (*graph.inputs[i], i) if last[j] == i and run.get(j, kept.get(j)) == t)
    return peak


def measure(given: Given, draft: Draft, kept: Kept | None = None) -> Measured:
    """Follow the draft stage by stage (formats.md 14.6 to 14.11); `kept` is that of its recomputations, if known."""
    kept = kept_of(given, draft.again) if kept is None else kept
    fault = kept.fault
    readers = list[int]()
    read = set[tuple[int, int]]()
    for away in draft.away:
        reader = first_reader(kept, away)
        if reader is None or (away.op, reader) in read:
            return Measured(
                0, kept.peaks, fault or f"op {away.op} cannot be away from {away.out_after} to {away.in_at}"
            )
        readers.append(reader)
        read.add((away.op, reader))
    peaks = present(given, kept, draft.away)
    if fault is None and max(peaks) > given.budget:
        stage = next(t for t, peak in enumerate(peaks) if peak > given.budget)
        fault = f"stage {stage} has {peaks[stage]} bytes in use, budget {given.budget}"
    if fault is None and given.host is not None and host_bytes(given, draft.away, readers) > given.host:
        fault = f"the host holds {host_bytes(given, draft.away, readers)} bytes, host budget {given.host}"
    if fault is not None:
        return Measured(0, peaks, fault)
    return _Clock(given, draft, kept, peaks, readers).run()


def first_reader(kept: Kept, away: Away) -> int | None:
    """The first stage that reads what has returned; None where the output may not be away then."""
    stages = kept.touched[away.op]
    place = bisect_right(stages, away.out_after)  # the stage that touches it next
    if place in (0, len(stages)) or away.in_at <= away.out_after:
        return None
    reader = stages[place]
    return None if away.in_at > reader or away.op in kept.runs[reader] else reader


def present(given: Given, kept: Kept, away: Sequence[Away]) -> list[int]:
    """The most bytes in use by stage once everything that leaves has left."""
    change = [0] * (len(given) + 1)
    for op, out_after, in_at in away:
        change[out_after + 1] += given.graph.size[op]
        change[in_at] -= given.graph.size[op]
    return [peak - gone for peak, gone in zip(kept.peaks, accumulate(change), strict=False)]


def host_bytes(given: Given, away: Sequence[Away], readers: Sequence[int]) -> int:
    """The most that the host holds."""
    change = [0] * (len(given) + 1)
    for (op, out_after, _), reader in zip(away, readers, strict=True):
        change[out_after] += given.graph.size[op]
        change[reader] -= given.graph.size[op]
    return max(accumulate(change))


def host_peak(given: Given, draft: Draft) -> int:
    """The most that the host holds under a valid draft."""
    kept = kept_of(given, draft.again)
    readers = [reader for away in draft.away if (reader := first_reader(kept, away)) is not None]
    return host_bytes(given, draft.away, readers)


class _Clock:
    """The compute lane, both directions of the link and the host, in ticks."""

    def __init__(self, given: Given, draft: Draft, kept: Kept, peaks: list[int], readers: list[int]) -> None:
        self.given, self.draft, self.kept, self.peaks = given, draft, kept, peaks
        count = len(given)
        self.leaves: list[list[int]] = [[] for _ in range(count)]
        self.returns: list[list[int]] = [[] for _ in range(count)]
        self.reads: list[list[int]] = [[] for _ in range(count)]
        for number, (away, reader) in enumerate(zip(draft.away, readers, strict=True)):
            self.leaves[away.out_after].append(number)
            self.returns[away.in_at].append(number)
            self.reads[reader].append(number)
        self.out = [(0, 0)] * len(readers)
        self.back = [(0, 0)] * len(readers)
        self.queue: list[int] = []
        self.done = self.leaving = self.out_free = self.in_free = self.host = 0

    def run(self) -> Measured:
        """All stages in order."""
        given, graph, now = self.given, self.given.graph, 0
        ready, start, end = [], [], []
        for t, run in enumerate(self.kept.runs):
            now = self._ready(t, now)
            ready.append(now)
            for number in self.returns[t]:
                self.host += given.move[self.draft.away[number].op]
                begin = max(self.in_free, now, self.host)
                self.in_free = begin + given.in_time[self.draft.away[number].op]
                self.back[number] = begin, self.in_free
            for number in self.reads[t]:
                now = max(now, self.back[number][1])
            shared = given.shared and any(graph.comm[i] for i in run)
            if shared:
                now = max(now, self.out_free, self.in_free)
            start.append(now)
            if given.launched:
                now, self.host = given.ran(t, sorted(run), now, self.host)
                lanes = self.out_free, self.in_free
                now, self.host, self.out_free = given.after_waits(t, now, self.host, *lanes)
            else:
                now += self.kept.ticks[t]
            end.append(now)
            if shared:
                self.out_free = self.in_free = now
            self._send(t, now)
        return Measured(given.whole_us(now), self.peaks, None, ready, start, end, self.out, self.back)

    def _ready(self, t: int, now: int) -> int:
        """What returns has left, and the stage fits beside what is still leaving."""
        for number in self.returns[t]:
            now = max(now, self.out[number][1])
        room = self.given.budget - self.peaks[t]
        while self.done < len(self.queue):
            number = self.queue[self.done]
            if self.out[number][1] > now and self.leaving <= room:
                break
            now = max(now, self.out[number][1])
            self.leaving -= self.given.graph.size[self.draft.away[number].op]
            self.done += 1
        return now

    def _send(self, t: int, now: int) -> None:
        for number in self.leaves[t]:
            op = self.draft.away[number].op
            self.host += self.given.move[op]
            begin = max(self.out_free, now, self.host)
            self.out_free = begin + self.given.out_time[op]
            self.out[number] = begin, self.out_free
            self.leaving += self.given.graph.size[op]
            self.queue.append(number)


def plan_of(given: Given, draft: Draft) -> JointPlan:
    """The draft as a decision; what is kept as runs where there are many pairs."""
    runs = retained(given.graph, draft.again)
    gone: dict[int, list[Away]] = {}
    for away in draft.away:
        gone.setdefault(away.op, []).append(away)
    pieces = [
        (i, first, last)
        for t, run in enumerate(runs)
        for i, until in run.items()
        for first, last in _pieces(t + 1, until, gone.get(i, ()))
    ]
    pairs = sum(last - first + 1 for _, first, last in pieces)
    kept = sorted((t, i) for i, first, last in pieces for t in range(first, last + 1)) if pairs <= MOST_PAIRS else ()
    return JointPlan(
        compute=tuple((t, i) for t, run in enumerate(runs) for i in sorted(run)),
        keep=tuple(kept),
        keep_runs=() if pairs <= MOST_PAIRS else tuple(sorted(pieces)),
        swap=tuple(JointSwap(op=op, out_after=out_after, in_at=in_at) for op, out_after, in_at in draft.away),
    )


def _pieces(first: int, last: int, gone: Collection[Away]) -> list[tuple[int, int]]:
    """The stages first … last without those in which the output is away."""
    pieces = []
    for away in sorted(gone, key=lambda away: away.out_after):
        if first - 1 <= away.out_after < away.in_at <= last:
            pieces.append((first, away.out_after))
            first = away.in_at
    return [(start, end) for start, end in [*pieces, (first, last)] if start <= end]


def draft_of(given: Given, plan: JointPlan) -> Draft:
    """The recomputations and swaps of a decision; what it keeps for nothing is not looked at.

    Raises `InvalidProblem` where it names stages that there are not.
    """
    again: list[set[int]] = [set() for _ in range(len(given))]
    stages = [stage for swap in plan.swap for stage in (swap.op, swap.in_at)]
    if max([0, *(t for t, _ in plan.compute), *stages]) >= len(given):
        raise InvalidProblem(f"the plan names stages beyond 0…{len(given) - 1}: give this problem's plan")
    for t, i in plan.compute:
        if i != t:
            again[t].add(i)
    return Draft(again, tuple(Away(swap.op, swap.out_after, swap.in_at) for swap in plan.swap))
