"""The least T_step: several pipelines with their synchronization, or one alone (README, proof 3).

One file: all of it shares what is excluded under which limit on the fullest stage and load.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.objective import Split
from solvers.replan.estimate.pipeline import stage_times_us
from solvers.replan.estimate.sync import sync_us
from solvers.replan.exact.bounds import FILLING, StageLimits
from solvers.replan.exact.cheapest import Within
from solvers.replan.exact.every_plan import EveryPlan
from solvers.replan.exact.movable import Movable
from solvers.replan.exact.placement import WITNESSES, witness_within
from solvers.replan.exact.promise import Promises
from solvers.replan.exact.rows import Excluded, Exclusions, Guess, Rows
from solvers.replan.exact.start import level_split
from solvers.replan.exact.step import NEVER_US, Fastest, StepSearch
from solvers.replan.exact.timetable import Timetable
from solvers.replan.progress import Effort, Stop, always, never

_PROMISING = 3
"""Number of most promising depths that are examined before all others."""
_PASS_BY_PASS = 1024
"""Up to so many microbatches the native extension goes through every pass."""
_DEPTH_US = 50
"""About what the pipelines of each depth take that are sought under one limit on the fullest stage."""
_PASSES_A_US = 14
"""Stages times microbatches that the most microbatches of a split are found for in a microsecond."""
_MISSES = 2
"""So many limits on the fullest stage one after the other may allow nothing better at a first look."""


class StepTimes:
    """Step times of one problem; `stop` ends every search, `late` also that of its bound.

    `most_suffixes` bounds what a search keeps at once, `effort` all searches together.
    """

    def __init__(
        self,
        problem: ReplanProblem,
        movable: Movable,
        most_suffixes: int,
        stop: Stop,
        late: Stop = never,
        effort: Effort | None = None,
    ) -> None:
        self.effort = effort or Effort()
        self.problem, self.movable, self.most_suffixes, self.stop, self.late = (
            problem,
            movable,
            most_suffixes,
            stop,
            late,
        )
        self.timetable = Timetable(problem)
        self._known_limits, self._off = dict[tuple[int, int], StageLimits](), dict[int, int]()
        self._most = dict[tuple[tuple[int, ...], int], int]()
        self._unanswered = dict[tuple[int, ...], tuple[int, int]]()
        self._free, self._excluded = StageLimits(problem, problem.layers), dict[tuple[int, int], Exclusions]()
        for layers in {pipeline.layers for pipeline in problem.current.pipelines} if problem.current else ():
            self.timetable.note(layers)
        self._fullest = range(-(-problem.layers // self._depths[-1]), problem.layers + 1)
        self._floors_us = [0] * (problem.layers + 1)
        """At n: no pipelines whose stages hold at most n layers end before this, however much moves."""

    def best(self, cutoff_us: int | None, load: int) -> Fastest:
        """The pipelines of the least T_step below the cutoff with which no node must receive more than `load` bytes.

        `time_us` and `bound_us` are those of T_step. Without a cutoff, of all there are; `NEVER_US` bounds what is not.
        """
        if cutoff_us is None:
            ceiling = self.ceiling_us(load)
            found = self.best(ceiling, load)
            return Fastest((), None, NEVER_US) if not found.splits and found.bound_us >= ceiling else found
        found = self._several(cutoff_us, load)
        ceiling = cutoff_us if found.time_us is None else found.time_us
        lone = self._alone(ceiling, self._limits(self.problem.layers, load))
        quickest = found if lone.time_us is None else lone
        return Fastest(quickest.splits, quickest.time_us, min(found.bound_us, lone.bound_us))

    def every_plan(
        self, latest_us: int, most: int, latest_of_us: Callable[[tuple[int, ...]], int]
    ) -> Iterator[tuple[int, tuple[Split, ...]]]:
        """T_step and pipelines of all plans with one up to `latest_us`, and of some others.

        `latest_of_us`: up to which T_step pipelines of these depths matter. `TooManyError` if there are more
        than `most`.
        """
        limits, alone = self._limits(self.problem.layers, self.movable.loads[-1]), self.problem.microbatches
        sync_least_us = self.sync_of_us(self._fullest[0])
        slowest = latest_us - sync_least_us
        rows = self._search(limits, max(slowest, 0), self.movable.loads[-1]).rows
        several = {depth: rows.tighten(depth, slowest, most) for depth, most in rows.possible(slowest).items()}

        def slowest_of_us(depths: tuple[int, ...]) -> int:
            return latest_of_us(depths) - sync_least_us * (len(depths) > 1)

        nodes = self.problem.nodes
        for time_us, splits in EveryPlan(limits, nodes, several, slowest, most, self.stop, slowest_of_us).plans():
            yield time_us + sync_us(self.problem, [layers for layers, _ in splits]), splits
        for depth in self._depths:
            yield from EveryPlan(limits, depth, {depth: alone}, latest_us, most, self.stop, slowest_of_us).plans()

    def within(self, latest_us: int, load: int) -> list[Within] | None:
        """What the relaxation leaves of plans with a T_step up to `latest_us` in which no node is busier than `load`.

        For each limit on the fullest stage the pipelines; None where one pipeline alone may do, or time is up.
        """
        if self._alone_from_us() <= latest_us:
            return None
        left, free = list[Within](), self.movable.loads[-1]
        known = self.movable.known(load)
        for number in self._paying(
            self._fullest if self.problem.layer_sync_us else [self.problem.layers], self._floors_us, latest_us + 1
        ):
            limits, slowest = self._limits(number, free), latest_us - self.sync_of_us(number)
            if self.stop():
                return None
            if slowest < limits.alone_us:
                continue
            search = replace(
                self._search(limits, slowest + 1, free),
                nodes=self.movable.nodes(known),
                most=self.movable.pipelines(known),
            )
            if possible := search.left(slowest):
                left.append(Within(limits, slowest, possible))
        return left

    def ask(self, within: Within, depth: int, microbatches: int) -> list[tuple[int, ...]]:
        """Search for a split with which so many microbatches end in time; that there is none is remembered."""
        search = self._search(within.limits, within.limit_us + 1, self.movable.loads[-1])
        search.rows.ask(depth, microbatches, within.limit_us, self.stop)
        some = [layers for layers in self.timetable.noted[depth] if max(layers) <= within.limits.fullest]
        return [layers for layers in some if self.most_within(layers, within.limit_us) >= microbatches][:1]

    def _alone_from_us(self) -> int:
        """One pipeline with all microbatches takes no less."""
        deepest, count = self._depths[-1], self.problem.microbatches
        return max(count * self._free.one_us * -(-self.problem.layers // deepest), self._free.alone_us)

    def most_within(self, layers: tuple[int, ...], limit_us: int) -> int:
        """The most microbatches that a pipeline of this split finishes within the limit, memory allowing."""
        if (layers, limit_us) not in self._most:
            self._most[layers, limit_us] = self._most_within(layers, limit_us)
        return self._most[layers, limit_us]

    def _most_within(self, layers: tuple[int, ...], limit_us: int) -> int:
        most = min(self._free.most_microbatches(len(layers), limit_us), self.timetable.most_fitting(layers))
        self.effort.spend(len(layers) * most // _PASSES_A_US)
        if FILLING is not None and most <= _PASS_BY_PASS:
            forward, backward = stage_times_us(self.problem, layers)
            found: int = FILLING.most_within(forward.tolist(), backward.tolist(), most, self.problem.p2p_us, limit_us)
            return found
        times = self.timetable.rows_us([layers], most)[0] if most else np.zeros(1, dtype=np.int64)
        return int(times.searchsorted(limit_us, side="right")) - 1

    def step_us(self, splits: tuple[Split, ...]) -> int:
        """T_step of pipelines, from what is known of theirs."""
        slowest_us = max(self.timetable.time_us(layers, count) for layers, count in set(splits))
        return slowest_us + sync_us(self.problem, [layers for layers, _ in splits])

    def ceiling_us(self, load: int) -> int:
        """A T_step that is beaten if memory and load allow any: by pipelines of one depth where that is possible."""
        times, limits = list[int](), self._limits(self.problem.layers, load)
        for depth in self._promises.depths(self.problem.layers):
            if self.late() or len(times) >= _PROMISING:
                break
            most = min(self.movable.nodes(load) // depth, self.movable.pipelines(load))
            share = -(-self.problem.microbatches // most) if most else 0
            layers = level_split(limits, depth, share) if share else None
            if layers is not None and limits.allows(layers):
                times.append(self.timetable.time_us(layers, share))
        return min(times, default=self.longest_us()) + self.sync_of_us(self.problem.layers) + 1

    def longest_us(self) -> int:
        """No plan's T_step is longer: all passes of all microbatches one after the other."""
        alone = self._limits(self.problem.layers, 0).alone_us + 2 * self._depths[-1] * self.problem.p2p_us
        return self.problem.microbatches * alone + self.sync_of_us(self.problem.layers)

    @property
    def _depths(self) -> range:
        """The depths that nodes and layers allow."""
        return range(1, min(self.problem.max_depth, self.problem.nodes, self.problem.layers) + 1)

    def _limits(self, fullest: int, load: int) -> StageLimits:
        if (fullest, load) not in self._known_limits:
            self._known_limits[fullest, load] = self._free.limited(fullest, self.movable.within(load))
        return self._known_limits[fullest, load]

    def sync_of_us(self, fullest: int) -> int:
        """The synchronization of several pipelines whose fullest stage has `fullest` layers."""
        return self.problem.sync_us + self.problem.layer_sync_us * fullest

    def _several(self, cutoff_us: int, load: int) -> Fastest:
        """Limits on the fullest stage, the most promising first, the others as long as they can pay.

        What no stage of at most 5 layers allows within a limit, none of at most 4 allows: where the relaxation says so,
        many limits are excluded at once; where one was searched in vain, a search for many of them comes first.
        """
        best, floors, waiting = Fastest((), None, cutoff_us), list(self._floors_us), list[list[int]]()
        stuck = False  # the last limit that was searched allowed nothing better: perhaps no other does
        first = self._paying(self._fullest if self.problem.layer_sync_us else [self.problem.layers], floors, cutoff_us)
        if first:
            chosen = self._promises.fullest(first, self.sync_of_us)
            waiting = [[k for k in first if k > chosen], [k for k in first if k < chosen]]
            if load >= self.movable.loads[-1]:
                best = self._sketched(best, [k for k in first if k >= chosen], load, floors)
                waiting.append([chosen])
            else:  # it was searched with larger loads: a proof is near
                best = self._better(best, self._pipelines(cutoff_us - self.sync_of_us(chosen), chosen, load, floors))
        while waiting and not self.stop():
            some = self._paying(waiting.pop(), floors, best.bound_us)
            limit_us = best.bound_us - self.sync_of_us(some[0]) if some else 0
            if not some or self._none_within(limit_us - 1, some[-1], floors):
                continue
            if stuck and len(some) > 1:
                if self._none_at_all(limit_us, some[-1], load, floors):
                    continue
                stuck = False
            if len(some) == 1:
                found = self._better(best, self._pipelines(limit_us, some[0], load, floors))
                stuck, best = found is best, found
            else:
                waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
        least = min(floors[number] + self.sync_of_us(number) for number in self._fullest)
        return Fastest(best.splits, best.time_us, min(least, best.bound_us))

    def _paying(self, fullest: Collection[int], floors_us: list[int], cutoff_us: int) -> list[int]:
        """The limits on the fullest stage that may allow a T_step below the cutoff, rising."""
        return [number for number in sorted(fullest) if floors_us[number] + self.sync_of_us(number) < cutoff_us]

    @cached_property
    def _promises(self) -> Promises:
        return Promises(self._free, takewhile(lambda _: not self.late(), self._depths))

    def _better(self, best: Fastest, found: Fastest) -> Fastest:
        """The pipelines found with T_step for time and bound, if that is below the best one's; or else these."""
        time_us = self.step_us(found.splits) if found.splits else best.bound_us
        return Fastest(found.splits, time_us, time_us) if time_us < best.bound_us else best

    def _sketched(self, best: Fastest, fullest: list[int], load: int, floors_us: list[int]) -> Fastest:
        """Something good soon: by known splits, then by few questions, under one limit after the other while it helps.

        Under a limit on the fullest stage a proof is the dearer the worse the best T_step is, and a much better one may
        stand under one of the next limits.
        """
        for most, misses in ((0, 0), (min(WITNESSES, self.most_suffixes), _MISSES)):
            left = misses
            for number in fullest:
                found = self._pipelines(best.bound_us - self.sync_of_us(number), number, load, floors_us, most)
                best = self._better(best, found)
                left = misses if found.splits else left - 1
                if left < 0:
                    break
        return best

    def _pipelines(
        self, cutoff_us: int, fullest: int, load: int, floors_us: list[int], most_suffixes: int | None = None
    ) -> Fastest:
        """The pipelines alone, of at most `fullest` layers a stage; what this excludes is noted in the floors.

        `most_suffixes`: fewer than usual where neither proof nor bound is wanted yet; 0: only splits that are known.
        """
        limits = self._limits(fullest, load)
        self.effort.spend(_DEPTH_US * len(limits.depths))
        found = Fastest((), None, max(0, cutoff_us))
        if cutoff_us > limits.alone_us:
            search = self._search(limits, cutoff_us, load, floors_us[fullest])
            search.rows.most_suffixes = self.most_suffixes if most_suffixes is None else most_suffixes
            promising = self._promises.depths(fullest)[: None if self.stop() else _PROMISING]
            for depth in sorted({*self.timetable.noted, *promising}.intersection(search.rows.depths)):
                if not self.late():
                    search.rows.meet(depth)
            found = (search if most_suffixes is None else replace(search, late=always)).fastest(cutoff_us)
            for layers in {layers for layers, _ in found.splits}:
                self.timetable.note(layers)
        self._raise(floors_us, fullest, found.bound_us, limits)
        return found

    def _none_within(self, limit_us: int, fullest: int, floors_us: list[int]) -> bool:
        """Whether the relaxation excludes such pipelines within the limit, whatever moves; noted in the floors."""
        free = self.movable.loads[-1]
        limits = self._limits(fullest, free)
        excluded = limit_us < limits.alone_us or self._search(limits, limit_us + 1, free).relaxed(limit_us)
        if excluded:
            self._raise(floors_us, fullest, limit_us + 1, limits)
        return excluded

    def _none_at_all(self, cutoff_us: int, fullest: int, load: int, floors_us: list[int]) -> bool:
        """Whether a search excludes such pipelines below the cutoff; noted in the floors.

        Where it finds some, their own fullest stage may still take too long to synchronize: then nothing is proven.
        """
        limits = self._limits(fullest, load)
        excluded = self._search(limits, cutoff_us, load, floors_us[fullest]).none_within(cutoff_us - 1)
        if excluded:
            self._raise(floors_us, fullest, cutoff_us, limits)
        return excluded

    def _raise(self, floors_us: list[int], fullest: int, bound_us: int, limits: StageLimits) -> None:
        for floors in [floors_us, self._floors_us] if limits.movable is None else [floors_us]:
            floors[: fullest + 1] = [max(floor, bound_us) for floor in floors[: fullest + 1]]

    def _search(self, limits: StageLimits, latest_us: int, load: int, floor_us: int = 0) -> StepSearch:
        rows = Rows(
            limits,
            self.timetable,
            latest_us,
            self.most_suffixes,
            Excluded(
                self._exclusions(limits.fullest, load),
                self._exclusions(limits.fullest, self.movable.loads[-1]),
                self._exclusions(self.problem.layers, load),
            ),
            lambda depth: self._starts(limits, depth),
            Guess(self._promises.most, self._off, self._unanswered, self.effort),
        )
        nodes, most = self.movable.nodes(load), self.movable.pipelines(load)
        return StepSearch(rows, nodes, most, self.problem.microbatches, floor_us, self.stop, self.late)

    def _exclusions(self, fullest: int, load: int) -> Exclusions:
        """What is excluded with these limits, of which all that is excluded with looser ones is a part."""
        found = self._excluded.setdefault((fullest, load), Exclusions())
        for (more, larger), other in self._excluded.items():
            if more >= fullest and larger >= load and other is not found:
                found.take(other)
        return found

    def _starts(self, limits: StageLimits, depth: int) -> list[tuple[int, ...]]:
        """Splits to begin with: those that run now, those that were good under other limits, and a level one."""
        level = level_split(limits, depth, depth) or level_split(limits, depth, 1)
        known = dict.fromkeys([*self.timetable.noted[depth], *([] if level is None else [level])])
        return [split for split in known if limits.allows(split)]

    def _alone(self, cutoff_us: int, limits: StageLimits) -> Fastest:
        """One pipeline with all microbatches, without synchronization."""
        best, least_us, count = Fastest((), None, cutoff_us), cutoff_us, self.problem.microbatches
        for depth in reversed(self._depths):
            floor = max(count * limits.one_us * -(-self.problem.layers // depth), limits.alone_us)
            if floor >= best.bound_us:
                break
            complete = False
            better = True
            while better and not (complete or self.stop()):
                latest_us = best.bound_us - 1
                found = witness_within(limits, depth, count, latest_us, self.most_suffixes, self.stop, self.effort)
                better, complete = len(found.times_us) > 0, found.complete
                if better:
                    time_us, number = int(found.times_us.min()), int(found.times_us.argmin())
                    best = Fastest(((tuple(found.layers[number].tolist()), count),), time_us, time_us)
            least_us = least_us if complete else min(least_us, floor)
        return Fastest(best.splits, best.time_us, min(least_us, best.bound_us))
