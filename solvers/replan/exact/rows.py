"""What is known of t(p, m), the best time of a pipeline of p stages with m microbatches: splits, and proofs."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from solvers.replan.exact.bounds import IntArray, StageLimits
from solvers.replan.exact.placement import witness_within
from solvers.replan.exact.timetable import Timetable
from solvers.replan.progress import Effort, Stop, never

UNKNOWN_US = 2**62
"""No split is known."""
_ROWS = 8
"""Splits of one search whose rows are worth computing."""

_VAIN, _NEAR = 3, 2**10
"""So often a question may stay unanswered; then none is asked within limits this close (reciprocal) to those."""
_RELAXED_US, _LEARNED_US, _ROW_US = 30, 60, 40
"""About what a question to the relaxation, splits that are noted, and the times of each of them take."""
_LATER = 2**14
"""Reciprocal of a relative margin: what is excluded within a limit is also tested this little above it."""


class Exclusions:
    """Proofs that no pipeline of some depth ends within some limit with some number of microbatches or more."""

    def __init__(self) -> None:
        self._proofs, self._taken = defaultdict[int, list[tuple[int, int]]](list), dict["Exclusions", int]()
        self._added = list[tuple[int, int, int]]()

    def add(self, depth: int, microbatches: int, limit_us: int) -> None:
        """No pipeline of this depth with `microbatches` or more ends within the limit."""
        proofs = self._proofs[depth]
        if not any(fewest <= microbatches and known_us >= limit_us for fewest, known_us in proofs):
            new = (microbatches, limit_us)
            proofs[:] = [proof for proof in proofs if proof[0] < microbatches or proof[1] > limit_us] + [new]
            self._added.append((depth, *new))

    def take(self, other: "Exclusions") -> None:
        """What holds under looser limits, and was added there since it was last taken, holds here."""
        for proof in other._added[self._taken.get(other, 0) :]:
            self.add(*proof)
        self._taken[other] = len(other._added)

    def most(self, depth: int, limit_us: int, most: int) -> int:
        """The microbatches, up to `most`, that are not excluded within the limit."""
        return min([fewest - 1 for fewest, known_us in self._proofs[depth] if known_us >= limit_us], default=most)


@dataclass(frozen=True)
class Excluded:
    """What is proven of one search's pipelines, and the parts of it that hold whatever moves or stages hold.

    `anyhow`: however much moves, with stages as full; `whatever_fullest`: as much moves, however full stages are.
    """

    here: Exclusions
    anyhow: Exclusions
    whatever_fullest: Exclusions


@dataclass(frozen=True)
class Guess:
    """The number of microbatches to try first, `about`, of a depth within a limit.

    `off`: by how much that was too low for a depth when it was last asked, for searches to share.
    """

    about: Callable[[int, int], int]
    off: dict[int, int]
    unanswered: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    """Of searches that had too much to look at the least limit, and how many there were; shared, too."""
    effort: Effort = field(default_factory=Effort)
    """What all searches together may do."""


class Rows:
    """Times reached and times excluded, for chosen depths and as many microbatches as can end within `latest_us`.

    t(p, m) never falls with m: fewer microbatches need neither more memory nor more time. Nothing is known of a depth
    that was not met yet; `starts` gives the splits to begin with then.
    """

    def __init__(
        self,
        limits: StageLimits,
        timetable: Timetable,
        latest_us: int,
        most_suffixes: int,
        excluded: Excluded,
        starts: Callable[[int], list[tuple[int, ...]]],
        guess: Guess,
    ) -> None:
        self.effort = guess.effort
        self.limits, self.timetable, self.most_suffixes = limits, timetable, most_suffixes
        self._excluded = excluded
        self._starts, self._met, self._about, self._off = starts, set[int](), guess.about, guess.off
        self._unanswered, self._abouts = guess.unanswered, dict[int, dict[int, int]]()
        self.depths = limits.depths
        self._most = {depth: limits.most_microbatches(depth, latest_us) for depth in self.depths}
        self.most = max(self._most.values(), default=0)
        self._reached_us, self._split = dict[int, IntArray](), dict[int, IntArray]()
        self._splits = defaultdict[int, list[tuple[int, ...]]](list)

    def meet(self, depth: int) -> bool:
        """Learn the splits to begin with, unless that was done before."""
        if depth in self._met:
            return False
        self._met.add(depth)
        if splits := self._starts(depth):
            self.learn(splits)
        return True

    def learn(self, splits: Sequence[tuple[int, ...]]) -> None:
        """Take these splits of one depth into account, for every number of microbatches for which memory holds them."""
        depth, most = len(splits[0]), self._most[len(splits[0])]
        self.effort.spend(_LEARNED_US + _ROW_US * len(splits))
        if depth not in self._reached_us:
            self._reached_us[depth] = np.full(most + 1, UNKNOWN_US, dtype=np.int64)
            self._split[depth] = np.zeros(most + 1, dtype=np.int64)
        times = self.timetable.rows_us(list(splits), most)
        for row, split in zip(times, splits, strict=True):
            row[self.timetable.most_fitting(split) + 1 :] = UNKNOWN_US
        best = times.argmin(axis=0)
        quickest, known = times[best, np.arange(most + 1)], self._reached_us[depth]
        better = np.flatnonzero(quickest < known)
        known[better] = quickest[better]
        self._split[depth][better] = len(self._splits[depth]) + best[better]
        self._splits[depth] += splits

    def split(self, depth: int, microbatches: int) -> tuple[int, ...]:
        """The quickest split known."""
        return self._splits[depth][int(self._split[depth][microbatches])]

    def reached_us(self) -> IntArray:
        """The times that splits known reach, rising."""
        return np.unique(np.concatenate([np.array([UNKNOWN_US]), *self._reached_us.values()]))

    def sure(self, limit_us: int) -> dict[int, int]:
        """The most microbatches that a pipeline of each depth is known to finish within the limit."""
        counts = dict.fromkeys(self.depths, 0)
        return counts | {depth: int((row[1:] <= limit_us).sum()) for depth, row in self._reached_us.items()}

    def possible(self, limit_us: int) -> dict[int, int]:
        """The most microbatches that nothing known excludes within the limit, which is at most `latest_us`."""
        return {
            depth: self._excluded.here.most(depth, limit_us, self.limits.most_microbatches(depth, limit_us))
            for depth in self.depths
        }

    def about(self, limit_us: int) -> dict[int, int]:
        """Of each depth about the most microbatches within the limit: guesses, computed once."""
        if limit_us not in self._abouts:
            self._abouts[limit_us] = {depth: self._about(depth, limit_us) for depth in self.depths}
        return self._abouts[limit_us]

    def tighten(self, depth: int, limit_us: int, most: int, stop: Stop = never) -> int:
        """`most` microbatches or fewer: what the relaxation does not exclude within the limit."""
        low, high, step, about = 0, most + 1, 1, self.about(limit_us)[depth]
        middle = max(1, min(most, about + self._off.get(depth, 0)))
        while low < high - 1 and not stop():
            if not self.excludes(depth, middle, limit_us):
                low, middle = middle, min(middle + step, high - 1)
            else:
                high, middle = middle, max(middle - step, low + 1)
            step *= 2
            if low and high <= most:
                middle = (low + high) // 2
        if low == high - 1 and most:
            self._off[depth] = low - about
        return high - 1

    def excludes(self, depth: int, microbatches: int, limit_us: int) -> bool:
        """Whether the relaxation excludes such pipelines within the limit; then that is remembered."""
        self.effort.spend(_RELAXED_US)
        if self.limits.may_end(depth, microbatches, limit_us):
            return False
        later_us = limit_us + limit_us // _LATER
        proven_us = limit_us if self.limits.may_end(depth, microbatches, later_us) else later_us
        self._excluded.anyhow.add(depth, microbatches, proven_us)
        self._excluded.here.add(depth, microbatches, proven_us)
        return True

    def ask(self, depth: int, microbatches: int, limit_us: int, stop: Stop = never) -> bool | None:
        """Can such a pipeline end within the limit? None: not known, too many splits to look at, or it had to stop."""
        shape = depth, microbatches, self.limits.fullest, self.most_suffixes
        near_us, often = self._unanswered.get(shape, (limit_us, 0))
        if often >= _VAIN and limit_us >= near_us - near_us // _NEAR:
            return None
        found = witness_within(self.limits, depth, microbatches, limit_us, self.most_suffixes, stop, self.effort)
        if not found.complete and not len(found.times_us):
            self._unanswered[shape] = min(near_us, limit_us), often + 1
        if found.complete:
            least = int(found.times_us.min()) - 1 if len(found.times_us) else limit_us
            self._excluded.here.add(depth, microbatches, least)
            if found.whatever_fullest:
                self._excluded.whatever_fullest.add(depth, microbatches, least)
        if len(found.times_us):
            best = found.layers[np.argsort(found.times_us, kind="stable")[:_ROWS]]
            splits = [tuple(split) for split in best.tolist()]
            self.learn(splits)
            for split in splits:
                self.timetable.note(split)
            return True
        return False if found.complete else None
