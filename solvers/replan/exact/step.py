"""The least time of the slowest of several pipelines: limits fall until one is proven too low (README, proof 3)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from solvers.replan.estimate.objective import Split
from solvers.replan.exact.rows import Rows
from solvers.replan.knapsack import at_most, counted, fill, fill_few, least_useful, useful
from solvers.replan.progress import Stop

_HALVINGS = 10
"""Bisection steps for the bound where the search was not finished."""
_KNAPSACK_US, _TIGHTENED_US = 40, 55
"""About what a knapsack over depths takes, and what choosing a depth to tighten does."""
NEVER_US = 2**61
"""The bound where no pipelines exist at all."""


@dataclass(frozen=True)
class Fastest:
    """Pipelines, the time of the slowest, and a time that none can beat; no pipelines: none known below the cutoff."""

    splits: tuple[Split, ...]
    time_us: int | None
    bound_us: int


@dataclass(frozen=True)
class StepSearch:
    """At most `most` pipelines on `nodes` nodes that count `microbatches`, whose depths and times `rows` knows.

    None end before `floor_us`: the caller knows. `late`: too late for a bound, too.
    """

    rows: Rows
    nodes: int
    most: int
    microbatches: int
    floor_us: int
    stop: Stop
    late: Stop

    def fastest(self, cutoff_us: int) -> Fastest:
        """The best below the cutoff; its bound is its time unless the search was stopped or had too much to look at.

        Of rows that ask nothing it is the best that they know, at hardly any cost and without a bound.
        """
        limit, best = cutoff_us - 1, Fastest((), None, 0)
        while True:
            counts = self._within(limit)
            if counts is None:
                proven_us = self._proven_us(limit) if self.rows.most_suffixes else self.floor_us
                return Fastest(best.splits, best.time_us, proven_us)
            if not counts:
                return Fastest(best.splits, best.time_us, limit + 1)
            splits = self.pipelines(limit)
            slowest = max(self.rows.timetable.time_us(*split) for split in set(splits))
            limit, best = slowest - 1, Fastest(splits, slowest, 0)

    def none_within(self, limit_us: int) -> bool:
        """Whether it is proven that no pipelines end within the limit."""
        return self._within(limit_us) == {}

    def pipelines(self, limit_us: int) -> tuple[Split, ...]:
        """Pipelines known to end within the limit, and as much earlier as is known."""
        known = self.rows.reached_us()
        known = known[: np.searchsorted(known, limit_us, side="right")]
        low, high = 0, len(known) - 1
        while low < high:
            middle = (low + high) // 2
            if self._filled(self.rows.sure(int(known[middle]))):
                high = middle
            else:
                low = middle + 1
        sure = self.rows.sure(int(known[high]))
        counts = self._filled(sure) or fill_few(sure, self.nodes, self.most, self.microbatches)
        assert counts, "the caller knows some within the limit"
        return self._trimmed(sure, counts)

    def _filled(self, worth: Mapping[int, int]) -> dict[int, int]:
        """Depths that count enough microbatches; empty if there are none such."""
        counts = fill(worth, self.nodes, self.most, self.microbatches)
        return counts if counted(worth, counts) >= self.microbatches else {}

    def _useful(self, worth: Mapping[int, int]) -> dict[int, int]:
        """The depths that pipelines which count enough microbatches may have."""
        return useful(worth, self.nodes, self.most, self.microbatches)

    def _excluded(self, worth: Mapping[int, int]) -> bool:
        """Whether no depths count enough microbatches."""
        some = self._useful(worth)
        return at_most(some, self.nodes, self.most) < self.microbatches

    def _within(self, limit: int) -> dict[int, int] | None:
        """Depths of pipelines that end within the limit: known ones, or {} if proven that none do, or None."""
        rows, sure = self.rows, self.rows.sure(limit)
        possible, tight, hidden, step = rows.possible(limit), set[int](), set[int](), dict[int, int]()
        while True:
            rows.effort.spend(_KNAPSACK_US)
            trial = sure | {depth: possible[depth] for depth in tight - hidden}
            counts = self._filled(trial)
            unsure = [depth for depth in counts if sure[depth] < trial[depth]]
            if counts and not unsure:
                return counts
            if self.stop() or not rows.most_suffixes:
                return None
            if not counts:
                if self._tighten(possible, tight, limit, self.stop):
                    continue
                some = fill_few(possible, self.nodes, self.most, self.microbatches)
                if some:
                    rows.effort.spend(self.nodes * sum(some.values()) // 20)
                if not some or not hidden.isdisjoint(some):
                    return some if some == {} else None
                counts = some
                unsure = [depth for depth in counts if sure[depth] < possible[depth]]
                if not unsure:
                    return counts
            if [depth for depth in unsure if rows.meet(depth)]:
                sure = rows.sure(limit)
                continue
            depth = max(unsure, key=lambda depth: (counts[depth] * depth, depth))
            asked = max(sure[depth] + 1, possible[depth] + 1 - step.get(depth, 1))
            answer = rows.ask(depth, asked, limit, self.stop)
            step[depth] = 1 if answer else 2 * step.get(depth, 1)
            if answer is None:
                hidden.add(depth)
            elif answer:
                sure = rows.sure(limit)
            else:
                possible[depth] = asked - 1

    def _tighten(self, possible: dict[int, int], tight: set[int], limit: int, stop: Stop) -> bool:
        """Ask the relaxation about the most promising depth that may be useful and is not `tight`; False without any.

        Of most depths it is enough to know that they count too little to be useful beside those that are `tight`.
        """
        rows, about = self.rows, self.rows.about(limit)
        while not stop():
            rows.effort.spend(_TIGHTENED_US)
            loose = self._useful(possible).keys() - tight
            if not loose:
                return False
            _, depth = max((min(possible[depth], about[depth]) / depth, depth) for depth in loose)
            known = {depth: possible[depth] for depth in tight}
            fewest = least_useful(depth, known, self.nodes, self.most, self.microbatches)
            if not 1 < fewest <= possible[depth] or not rows.excludes(depth, fewest, limit):
                possible[depth] = rows.tighten(depth, limit, possible[depth], stop)
                tight.add(depth)
                return True
            possible[depth] = fewest - 1
        return False

    def relaxed(self, limit: int) -> bool:
        """Whether the relaxation excludes the limit."""
        possible, tight = self.rows.possible(limit), set[int]()
        while self._tighten(possible, tight, limit, self.late):
            if self._filled({depth: possible[depth] for depth in tight}):
                return False
        return self._excluded(possible)

    def left(self, limit: int) -> dict[int, int]:
        """The most microbatches of each depth that pipelines within the limit may have; {} where there are none."""
        possible, tight = self.rows.possible(limit), set[int]()
        while self._tighten(possible, tight, limit, self.stop):
            pass
        return {} if self._excluded(possible) else self._useful(possible)

    def _trimmed(self, worth: dict[int, int], counts: dict[int, int]) -> tuple[Split, ...]:
        """Pipelines that count exactly the microbatches: superfluous ones are left out, then each counts one less."""
        chosen = sorted((worth[depth], depth) for depth, count in counts.items() for _ in range(count))
        excess = sum(count for count, _ in chosen) - self.microbatches
        while chosen[0][0] <= excess:
            excess -= chosen.pop(0)[0]
        kept = chosen[::-1]
        less, more = divmod(excess, len(kept))
        taken = [min(most - 1, less + (number < more)) for number, (most, _) in enumerate(kept)]
        short = excess - sum(taken)
        for number, (most, _) in enumerate(kept):
            extra = min(short, most - 1 - taken[number])
            taken[number], short = taken[number] + extra, short - extra
        return tuple(
            (self.rows.split(depth, most), most - lost) for (most, depth), lost in zip(kept, taken, strict=True)
        )

    def _proven_us(self, limit: int) -> int:
        """One more than the largest limit, up to this one, that is excluded by what is known without asking.

        Most often that is no more than what was known already, which is asked first.
        """
        low, high = self.floor_us - 1, max(limit, self.floor_us - 1)
        for number in range(_HALVINGS + 1):
            if low >= high or self.late():
                break
            middle = (low + high + 1) // 2 if number else low + 1
            if self.relaxed(middle):
                low = middle
            else:
                high = middle - 1
        return low + 1
