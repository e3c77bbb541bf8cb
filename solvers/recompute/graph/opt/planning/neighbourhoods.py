"""Plans of layered graphs made cheaper: a few layers at a time exactly, with model P (README), the others fixed."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from solvers.engines.model import FloatArray
from solvers.ir.solution import Limits
from solvers.recompute.graph.answers import Search
from solvers.recompute.graph.opt.bound.patterns import Pattern
from solvers.recompute.graph.opt.layers import Layers
from solvers.recompute.graph.opt.planning.slots import Slot, SlotModel, SlotPlan
from solvers.recompute.graph.replay import replay

DEPTH = 6
"""Latest windows in which a layer may hide an op."""
WIDTHS = (4, 5, 6, 7, 3)
"""How many layers the neighbourhoods leave open in turn, where no clock says how long one takes."""
KINDS, FIRST_WIDTH = 5, 4
"""Kinds of neighbourhoods, each as wide as is quick for it, and how many layers the first ones leave open."""
SHORT_S, LONG_S = 0.4, 1.5
"""A neighbourhood that is solved faster grows, one that takes longer is cut off and shrinks."""
ROUNDS, NODES, FIRST_NODES = 80, 60, 3
"""What one unit of deterministic work allows: neighbourhoods, nodes of each, and of the windows of a first plan."""
GAP = 2e-3
"""Smaller gains, relative to what the plan adds to the base, are not looked for: the proof would take the time."""
IDLE = 40
"""Neighbourhoods in a row without a better plan after which the search ends."""
BEGUN, TRIED = 5, 6
"""Plans from which it begins, and neighbourhoods of each before it goes on with the best."""
PLACING = 0.1
"""The share of the time left that the windows of a first plan may take."""


@dataclass(frozen=True)
class Start:
    """A plan to begin with: a pattern for each layer, and what is computed again, by stage."""

    patterns: list[Pattern]
    recomputed: Sequence[set[int]]


class Neighbourhoods:
    """Offers the search better plans than its starts; `choices` are the patterns that each layer may have.

    Plans that need a byte more than the budget may be starts: what is hidden in them is taken back until they fit.
    """

    def __init__(
        self, search: Search, layers: Layers, choices: list[list[Pattern]], starts: Sequence[Start], engine: str
    ) -> None:
        self.search, self.given, self.layers, self.engine = search, search.given, layers, engine
        self.starts = starts
        used = [slot for start in starts for slot in self._slots(start.recomputed)]
        self.model = SlotModel(self.given, layers, choices, DEPTH, used)
        self.room: dict[int, int] = {}
        self.source, self.widths, self.count = random.Random(search.limits.seed), [FIRST_WIDTH] * KINDS, 0

    def run(self, deadline: float) -> None:
        """Some neighbourhoods of each of several starts, then those of the best as long as that helps."""
        best: SlotPlan | None = None
        for x, holds in self._beginnings(deadline):
            left = deadline - time.perf_counter()
            if left <= 0 or self.search.done():
                break
            plan = self.model.planned(x) if holds else self._placed(x, left)
            if plan is not None:
                plan = self._improved(plan, deadline, TRIED)
                best = plan if best is None or plan.cost_us < best.cost_us else best
        if best is not None:
            self._improved(best, deadline)

    def _beginnings(self, deadline: float) -> list[tuple[FloatArray, bool]]:
        """The first few starts in which every row holds; where it holds in none, the first one; and whether it does.

        The clock only cuts short what would come after the deadline: with `work` there is none.
        """
        tried: list[tuple[FloatArray, bool]] = []
        for start in self.starts:
            tried.append(self.model.start(start.patterns, self._slots(start.recomputed)))
            late = self.search.limits.work is None and time.perf_counter() >= deadline
            if late or sum(holds for _, holds in tried) == BEGUN:
                break
        return [one for one in tried if one[1]] or tried[:1]

    def _placed(self, x: FloatArray, left_s: float) -> SlotPlan | None:
        """A plan with the patterns of a point that breaks rows, if there is one."""
        time_s = (PLACING if self.search.limits.work is None else 1.0) * left_s
        plan = self.model.placed(x, self._limits(time_s, FIRST_NODES), self.engine, self.search.heard)
        self.search.stopped = self.search.stopped or self.model.interrupted
        return plan

    def _slots(self, recomputed: Sequence[set[int]]) -> list[Slot]:
        """What a plan hides, and where."""
        first, size, comm = self.layers.first, self.layers.size, self.given.comm
        windows = [w for w in range(self.layers.end, len(self.given)) if comm[w]]
        return [(*divmod(i - first, size), w) for w in windows for i in sorted(recomputed[w])]

    def _improved(self, best: SlotPlan, deadline: float, most: int | None = None) -> SlotPlan:
        """The best plan of its neighbourhoods: of so many, or until many in a row brought nothing."""
        search, work, began_with, idle = self.search, self.search.limits.work, self.count, 0
        while idle < IDLE and not search.done() and (most is None or self.count < began_with + most):
            began = time.perf_counter()
            left = deadline - began if work is not None else min(LONG_S, deadline - began)
            if left <= 0 or (work is not None and self.count >= ROUNDS * work):
                break
            free = self._free()
            plan = self.model.improve(best, free, self._limits(left), self.engine, search.heard, self.room)
            search.stopped = search.stopped or self.model.interrupted
            self._adapt(time.perf_counter() - began, left)
            idle += 1
            if plan is not None and plan.cost_us < best.cost_us - 0.5 and self._accepted(plan):
                best, idle = plan, 0
        return best

    def _adapt(self, spent_s: float, left_s: float) -> None:
        """Each kind wider where its last one was quick; in turn where no clock may decide."""
        kind, most = self.count % KINDS, self.layers.count
        if self.search.limits.work is not None:
            self.widths = [WIDTHS[(self.count + self.count // KINDS) % len(WIDTHS)]] * KINDS
        elif spent_s < 0.9 * left_s:
            self.widths[kind] = min(self.widths[kind] + (spent_s < SHORT_S) + (spent_s < SHORT_S / 4), most)
        else:
            self.widths[kind] = max(2, self.widths[kind] - 1)
        self.count += 1

    def _free(self) -> set[int]:
        """In turn: the top layers and any one, neighbours, any, neighbours and the top layer, neighbours and any one.

        The top layer has most to choose from; with the next ones it decides the peak.
        """
        layers, kind, source = self.layers.count, self.count % KINDS, self.source
        width = self.widths[kind]
        if kind == 2:
            return set(source.sample(range(layers), min(layers, width)))
        first = max(0, layers - width) if kind == 0 else source.randrange(1 - width, layers)
        free = {layer for layer in range(first, first + width) if 0 <= layer < layers}
        return free | ({source.randrange(layers)} if kind in (0, 4) else {layers - 1} if kind == 3 else set[int]())

    def _limits(self, time_s: float, nodes: int = NODES) -> Limits:
        limits = self.search.limits
        work = None if limits.work is None else nodes
        return Limits(time_s=max(0.0, time_s), gap=GAP, threads=limits.threads, seed=limits.seed, work=work)

    def _accepted(self, plan: SlotPlan) -> bool:
        """Offer a plan; where the replay refuses it, take the missing bytes away from its stages."""
        search, given = self.search, self.given
        if search.offer(plan.recomputed):
            return True
        for t, peak in enumerate(replay(given, plan.recomputed).peaks):
            if peak > given.budget and t >= self.layers.end:
                self.room[t] = self.room.get(t, 0) + peak - given.budget
        return False
