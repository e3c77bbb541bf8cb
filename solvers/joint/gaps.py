"""Model G (README): a linear model of the step, whose rounded solutions are choices of what leaves and runs again.

An output is made in one stage and read in later ones; between two stages that touch it next to each other in time lies
a *gap*, in which it only takes memory. For each gap in which memory is short the model decides: does the output leave
for the host, is it computed again at the gap's end, or does it stay? It proves nothing (`moment.py` does): the better
its choices, the better the plans that `joint` begins its search from.

Memory and transfers have rows at some stages only, as all would be too many. So a choice may not fit elsewhere, or make
the device wait: `planned` solves, rounds, mends and measures, adds rows where most was missing, and solves again.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from solvers.engines import ModelBuilder
from solvers.ir.solution import Limits
from solvers.joint.asked import solved
from solvers.joint.choice import Choice, fill, keep_all, levels, spans, where
from solvers.joint.draft import kept_of
from solvers.joint.given import Given
from solvers.joint.greedy import Hiding, link_prices
from solvers.joint.guided import relaxed_prices
from solvers.joint.moment import Proof
from solvers.joint.swaps import timed
from solvers.joint.tighten import tightened

VARIANTS = (
    *((count, rate, hidden, 1) for rate, hidden in ((1.0, 1.0), (0.95, 0.5), (0.9, 0.0)) for count in (1, 3, 6)),
    (3, 1.0, 0.7, 3),
    (6, 1.0, 0.7, 3),
)
"""The models that are tried, in order. Each: at how many stages transfers have rows at first, on which shares of the
link's rate and of communication's time it counts, and how often it is solved, with more rows where plans waited."""
FIRST, MORE = 60, 6
"""At how many stages memory has rows at first, and at how many more after each solution."""
FOLLOWED = 4
"""How many of the relaxations at one moment (`moment.py`) are rounded to choices, too."""
LINES = 8
"""The most rows of one stage for ends of swap-outs, and for ends of swap-ins."""
CHAIN = 6
"""How deep is looked for what has to run again before an op can: its inputs, theirs, and so on."""

Gap = tuple[int, int, int]
"""(op, the stage that touches its output last before the gap, the stage that does so next)."""


def planned(
    given: Given, proofs: Sequence[Proof], limits: Callable[[], Limits], engine: str, stop: Callable[[], bool]
) -> Iterator[Choice]:
    """Choices, one after the other: first rounded relaxations at one moment, then the model's under all `VARIANTS`.

    `proofs` are those relaxations' solutions, the best bound first; their moments are also the first stages at which
    transfers have rows, as time is shortest there. `limits` is asked anew before each solution; `stop` ends it all.
    """
    model, moments = GapModel(given), [proof.stage for proof in proofs]
    for proof in proofs[:FOLLOWED]:
        filled = fill(given, model.followed(proof), relaxed_prices(given, proof), stop)
        if filled is not None:
            yield filled
    prices = link_prices(given, Hiding(given, stop).swaps())
    memory = model.fullest(FIRST) | set(moments)
    for count, rate, hidden, rounds in VARIANTS:
        link = set(moments[:count])
        for _ in range(rounds):
            decided = model.solved(sorted(link), sorted(memory), rate, hidden, limits(), engine)
            if decided is None or stop():
                return
            kept = kept_of(given, decided.again)
            if kept.fault is not None:
                break
            memory |= _worst(levels(given, kept, spans(kept, decided.away)) - given.budget)
            filled = fill(given, decided, prices, stop)
            if filled is None:
                continue
            filled = tightened(given, filled, stop)
            yield filled
            found = timed(given, filled, quick=True)[1] if rounds > 1 else None
            if found is not None and found.violation is None:
                link |= _worst(np.array(found.start) - np.array([0, *found.end[:-1]]))


def _worst(over: np.ndarray) -> set[int]:
    """The few stages where most is missing; none where nothing is."""
    order = np.argsort(-over, kind="stable")[:MORE]
    return {int(stage) for stage in order if over[stage] > 0}


@dataclass(frozen=True)
class _Columns:
    """The model's columns while it is written: `place` of each by key, and its `cost` in shares of the step's time.

    Keys: ("wait", number), ("swap", op, stage before the gap), ("again" or "hide", op, the stage that it runs for).
    """

    place: dict[tuple[object, ...], int]
    cost: list[float]

    def add(self, key: tuple[object, ...], cost: float) -> None:
        self.place[key] = len(self.cost)
        self.cost.append(cost)


class GapModel:
    """What all variants of the model share: the gaps in which memory is short, and what can run again at their ends.

    `chains`: by op and stage, the inputs that must run with it, as nobody has them then; `closed`: where it cannot run.
    """

    def __init__(self, given: Given) -> None:
        self.given, self.kept = given, kept_of(given, keep_all(given).again)
        self.before = [0, *accumulate(given.time)]
        self.whole = float(max(1, self.before[-1]))
        self.largest = float(max(1, *given.graph.size))
        short = [0, *accumulate(peak > given.budget for peak in self.kept.peaks)]
        self.gaps: list[Gap] = [
            (i, a, b)
            for i, stages in enumerate(self.kept.touched)
            for a, b in pairwise(stages)
            if given.graph.size[i] and short[b] > short[a + 1]
        ]
        self.chains: dict[tuple[int, int], list[int]] = {}
        self.closed: set[tuple[int, int]] = set()
        for i, _, b in self.gaps:
            self._chain(i, b, CHAIN)

    def fullest(self, count: int) -> set[int]:
        """Of the stages that do not fit with everything kept: the fullest of each of `count` equal stretches."""
        peaks = self.kept.peaks
        over = [t for t, peak in enumerate(peaks) if peak > self.given.budget]
        parts = np.array_split(np.array(over, dtype=int), min(count, max(1, len(over))))
        return {max(part.tolist(), key=peaks.__getitem__) for part in parts if len(part)}

    def _chain(self, i: int, b: int, most: int) -> bool:
        """Whether op i can be computed again for stage b, with inputs that nobody has then, `most` levels deep."""
        if (i, b) in self.chains:
            return True
        graph = self.given.graph
        if (i, b) in self.closed or most == 0 or not graph.replay[i] or b < graph.replays_from:
            return False
        missing = [j for j in graph.inputs[i] if j != b and not self._known(j, b)]
        if not all(self._chain(j, b, most - 1) for j in missing):
            self.closed.add((i, b))
            return False
        self.chains[i, b] = missing
        return True

    def _known(self, j: int, b: int) -> bool:
        """Whether op j's output is in use around stage b: then it is in memory there, or the model decides about it."""
        return self.kept.gap(j, b) is not None or b in self.kept.touched[j]

    # -- the model

    def solved(
        self, link: list[int], memory: list[int], rate: float, hidden: float, limits: Limits, engine: str
    ) -> Choice | None:
        """Solve with rows of transfers and of memory at these stages, and round; None without a solution.

        `rate`, `hidden`: the shares of the link's rate and of communication's time that it may count on.
        """
        builder, columns = ModelBuilder("gaps"), _Columns({}, [])
        for number in range(len(link) + 1):
            columns.add(("wait", number), float(number == len(link)))
        for i, a, _ in self.gaps:
            columns.add(("swap", i, a), 0.0)
        for i, b in self.chains:
            columns.add(("again", i, b), self.given.time[i] / self.whole)
            if self.given.hideable[i]:
                columns.add(("hide", i, b), 0.0)
        upper = [np.inf] * (len(link) + 1) + [1.0] * (len(columns.cost) - len(link) - 1)
        builder.columns(len(columns.cost), 0.0, upper, cost=columns.cost, name="x")
        rows = (*self._once(columns, hidden), *self._memory(columns, memory), *self._lanes(columns, link, rate))
        for weights, low, high in rows:
            builder.row(list(weights), list(weights.values()), lower=low, upper=high)
        answer = solved(builder.build(), limits, engine)
        if answer.x is None:
            return None
        values = {key: float(answer.x[place]) for key, place in columns.place.items()}
        return self._rounded(values)

    def _runs(self, columns: _Columns, i: int, b: int) -> dict[int, float]:
        return {columns.place[key]: 1.0 for key in (("again", i, b), ("hide", i, b)) if key in columns.place}

    def _once(self, columns: _Columns, hidden: float) -> Iterator[tuple[dict[int, float], float, float]]:
        """Rows (once) and (window), and that what runs again has its inputs: weights by column, least, most.

        A gap's output leaves, or runs again, or neither. What is hidden behind communication shares its time.
        """
        for (i, b), missing in self.chains.items():
            for j in missing:
                less = {place: -1.0 for place in self._runs(columns, i, b)}
                yield self._runs(columns, j, b) | less, 0.0, np.inf
        for i, a, b in self.gaps:
            yield self._runs(columns, i, b) | {columns.place["swap", i, a]: 1.0}, -np.inf, 1.0
        given, graph = self.given, self.given.graph
        windows = [given.time[t] for t in range(len(given)) if graph.comm[t]]
        hides = {place: given.time[key[1]] for key, place in columns.place.items() if key[0] == "hide"}  # type: ignore[call-overload]
        for parts in (0, 2, 3, 4) if hides else ():
            grain = max(windows) // parts + 1 if parts else 1
            scale = 1.0 if parts else self.whole
            weights = {place: time // grain / scale for place, time in hides.items() if time >= grain}
            yield weights, -np.inf, hidden * sum(window // grain for window in windows) / scale

    def _memory(self, columns: _Columns, stages: list[int]) -> Iterator[tuple[dict[int, float], float, float]]:
        """Rows (memory): of the gaps around a stage as much is gone as it lacks with everything kept."""
        size = self.given.graph.size
        for q in stages:
            weights: dict[int, float] = {}
            for i, a, b in self.gaps:
                if a < q < b:
                    gone = {**self._runs(columns, i, b), columns.place["swap", i, a]: 1.0}
                    weights |= {place: size[i] / self.largest for place in gone}
            yield weights, (self.kept.peaks[q] - self.given.budget) / self.largest, np.inf

    def _lanes(
        self, columns: _Columns, link: list[int], rate: float
    ) -> Iterator[tuple[dict[int, float], float, float]]:
        """Rows (out) and (in): what is away in a stage has left before it, and is back before it is read.

        Column wait k: how much later than with unlimited memory the k-th of these stages begins; the last: it ends.
        """
        whole = self.whole * rate
        for number, q in enumerate(link):
            yield {number + 1: 1.0, number: -1.0}, 0.0, np.inf
            away = [gap for gap in self.gaps if gap[1] < q < gap[2]]
            for e in _some(sorted({a for _, a, _ in away})):
                weights = {columns.place["swap", i, a]: -self.given.out_time[i] / whole for i, a, _ in away if a >= e}
                weights[number] = 1.0
                earlier = bisect_right(link, e) - 1
                if earlier >= 0:
                    weights[earlier] = -1.0
                yield weights, (self.before[e + 1] - self.before[q]) / self.whole, np.inf
            for s in _some(sorted({b for _, _, b in away})):
                weights = {columns.place["swap", i, a]: -self.given.in_time[i] / whole for i, a, b in away if b <= s}
                later = bisect_right(link, s)
                weights |= {number: -1.0, later: 1.0}
                yield weights, (self.before[q + 1] - self.before[s]) / self.whole, np.inf

    # -- rounding

    def followed(self, proof: Proof) -> Choice:
        """The choice that does what a relaxation does by half at least, around its moment."""
        values: dict[tuple[object, ...], float] = {}
        for i, a, b in self.gaps:
            there = a < proof.stage < b
            values["swap", i, a] = proof.values.get(f"swap/{i}", 0.0) * there
            again = proof.values.get(f"again/{i}", 0.0) + proof.values.get(f"hide/{i}", 0.0)
            values["again", i, b] = again * there
        return self._rounded(values)

    def _rounded(self, values: dict[tuple[object, ...], float]) -> Choice:
        """The choice that does what a solution does by half at least; what runs again does where it is first needed."""
        choice, marked = keep_all(self.given), dict[int, list[Gap]]()
        for i, a, b in sorted(self.gaps, key=lambda gap: gap[2]):
            if values["swap", i, a] >= 0.5:
                choice.away.add((i, a))
            elif values.get(("again", i, b), 0.0) + values.get(("hide", i, b), 0.0) >= 0.5:
                marked.setdefault(i, []).append((i, a, b))
        for gap in sorted((gap for gaps in marked.values() for gap in gaps), key=lambda gap: (gap[2], gap[0])):
            if gap in marked[gap[0]]:
                self._again(choice, marked, gap)
        return choice

    def _again(self, choice: Choice, marked: dict[int, list[Gap]], gap: Gap) -> None:
        """Let a gap's output run again for its end, with all inputs that are gone by then; nothing if some cannot.

        Inputs in gaps that are `marked` to run again as well do so here, and are marked no longer.
        """
        at = where(self.given, gap[2], gap[1])
        if at is None:
            return
        needed, ended, stack = set[int](), list[Gap](), [gap[0]]
        while stack:
            i = stack.pop()
            if i in needed or i in choice.again[at] or i == at:
                continue
            gone = next((other for other in marked.get(i, ()) if other[1] < at <= other[2]), None)
            if gone is None and i != gap[0] and self._known(i, at):
                continue
            if not self.given.graph.replay[i] or (self.given.graph.comm[i] and at != gap[2]):
                return
            needed.add(i)
            ended += [] if gone is None else [gone]
            stack += self.given.graph.inputs[i]
        choice.again[at] |= needed
        for other in ended:
            marked[other[0]].remove(other)


def _some(stages: list[int]) -> list[int]:
    """At most `LINES` of them, evenly, the first and the last included."""
    if len(stages) <= LINES:
        return stages
    places = np.linspace(0, len(stages) - 1, LINES).round().astype(int)
    return sorted({stages[place] for place in places.tolist()})
