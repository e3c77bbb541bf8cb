"""`opt-intervals`: when each output is held, as intervals, searched whole and then neighbourhood by neighbourhood."""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Limits, Status, Watch
from solvers.recompute.graph.answers import Answer, Search, first_plans, trivial, uninterrupted, windows_of
from solvers.recompute.graph.replay import Instance, instance
from solvers.recompute.graph.stages import latest_dependants

if TYPE_CHECKING:
    from solvers.engines.cpsat import CpAnswer, CpModel

WHOLE_SHARE = 0.7
"""Of the time (or work), what the whole model may take before the neighbourhoods' turn."""
BUILD_S_PER_PAIR, PAIRS = 1e-5, 500_000
"""About how long a pair of an op and a stage takes to be built, and pairs that a unit of deterministic work allows."""
LEAST_S, LEAST_WORK = 3.0, 1.0
"""Time and work of a neighbourhood's search."""
LEAST_FREE, MOST_FREE = 30, 300
"""Ops that a neighbourhood leaves open."""


@dataclass(frozen=True)
class OptIntervals:
    """Retention intervals (Moccasin, Bartan et al. 2023) with windows: each op recomputed at most `again` times.

    This is a part of the problem's plans, so its own bound is not the problem's: the answer's bound is the time of each
    op once, and `reason` tells what was proved within the class. Models of more than `most_literals` pairs of an op and
    a window are not built.
    """

    again: int = 1
    most_literals: int = 200_000
    NAME = "opt-intervals"

    def solve(self, problem: RecomputeGraphProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The best plan found in the class."""
        search = Search(instance(problem), self.NAME, limits, watch)
        return trivial(search) or uninterrupted(search, lambda: self._answer(search))

    def _answer(self, search: Search) -> Answer:
        first_plans(search, windows_of(search.given))
        size = self.again * len(windows_of(search.given)) * len(search.given)
        if size > self.most_literals:
            search.notes.append(f"the model would have some {size} windows to choose, more than {self.most_literals}")
        elif not affordable(search):
            search.notes.append("the limits are too short for a model of so many ops and stages: give more")
        elif not search.done():
            Intervals(search, self.again).run()
        return search.answer()


def affordable(search: Search) -> bool:
    """Whether the model can be built within the time left, or with the work given."""
    pairs = sum(last - i for i, last in enumerate(latest_dependants(search.given)))
    if search.limits.work is not None:
        return pairs <= PAIRS * max(1.0, search.limits.work)
    return pairs * BUILD_S_PER_PAIR <= 0.5 * search.left_s()


class Intervals:
    """The whole model first; where that is not the end, neighbourhoods of the best plan, each with the rest fixed.

    It offers its plans to the search, and notes there what was proved within the class.
    """

    def __init__(self, search: Search, again: int) -> None:
        from solvers.recompute.graph.interval_model import IntervalModel

        self.search = search
        counts = _counts(search, again)
        self.model: IntervalModel = IntervalModel(search.given, counts)
        self.kind = f"recompute an op at most {again} times"
        self.kind += f", some {max(counts)} times" if max(counts) > again else ""
        self.source = random.Random(search.limits.seed)
        self.work = search.limits.work
        self.size = max(LEAST_FREE, len(search.given) // 4)

    def run(self) -> None:
        """Until proved within the class, stopped, or out of time or work."""
        search = self.search
        work = None if self.work is None else WHOLE_SHARE * self.work
        found = self._ask(self._whole(), (WHOLE_SHARE if self.work is None else 1.0) * search.left_s(), work)
        if found.status is Status.OPTIMAL:
            search.notes.append(f"optimal within plans that {self.kind}: {found.objective} us")
        elif found.status is Status.INFEASIBLE:
            search.notes.append(f"no plan fits of those that {self.kind}")
        elif search.runs is None:
            found = self._ask(self._whole(), search.left_s(), None if self.work is None else self.work - (work or 0))
            search.notes += [found.reason] if found.reason else []
        else:
            self._neighbourhoods(None if self.work is None else self.work - (work or 0))
            search.notes.append(f"the best of the plans searched that {self.kind}")

    def _whole(self) -> "CpModel":
        runs = self.search.runs
        return self.model.model if runs is None else self.model.around(runs)

    def _neighbourhoods(self, work: float | None) -> None:
        """Small ones first; larger where nothing is found, smaller where there is not time enough to finish."""
        search = self.search
        rounds = None if work is None else int(work / LEAST_WORK)
        while search.runs is not None and not search.done() and (rounds is None or rounds > 0):
            before = search.objective
            free = _neighbourhood(search.given, self.source, self.size)
            model = self.model.around(search.runs, free)
            limits = (LEAST_S, None) if rounds is None else (search.left_s(), LEAST_WORK)
            found = self._ask(model, *limits)
            rounds = None if rounds is None else rounds - 1
            if found.status is Status.OPTIMAL and search.objective == before:
                self.size = min(MOST_FREE, self.size * 5 // 4)
            elif found.status is not Status.OPTIMAL:
                self.size = max(LEAST_FREE, self.size * 4 // 5)

    def _ask(self, model: "CpModel", time_s: float, work: float | None) -> "CpAnswer":
        from solvers.engines.cpsat import solve_cpsat

        search = self.search
        limits = Limits(
            time_s=max(0.01, min(time_s, search.left_s())),
            work=work,
            gap=search.limits.gap,
            threads=search.limits.threads,
            seed=search.limits.seed,
        )
        found = solve_cpsat(model, limits, search.observed_part)
        search.stopped = search.stopped or found.interrupted
        search.engine = found.engine
        if found.objective is not None:
            search.offer(self.model.recomputed(found))
        return found


def _counts(search: Search, again: int) -> list[int]:
    """How often each op may be recomputed: `again` times, or as often as in the plan to begin from."""
    counts = [0] * len(search.given)
    for t, run in enumerate(search.runs or ()):
        for i in run:
            counts[i] += i < t
    return [max(again, count) for count in counts]


def _neighbourhood(given: Instance, source: random.Random, size: int) -> set[int]:
    """Ops to leave open: next to each other in the graph, or in time, or any that wait long for a reader."""
    count = len(given)
    first = source.randrange(count)
    kind = source.randrange(3)
    if kind == 0:
        waiting = [i for i in range(count) if given.users[i] and given.users[i][-1] - i > count // 10]
        return set(source.sample(waiting, min(len(waiting), size)))
    if kind == 1:
        found: set[int] = set()
        frontier = [first]
        while frontier and len(found) < size:
            i = frontier.pop(source.randrange(len(frontier)))
            if i not in found:
                found.add(i)
                frontier += [*given.inputs[i], *given.users[i]]
        return found
    start = min(first, max(0, count - size))
    return set(range(start, min(count, start + size)))
