"""Plans of layered graphs: a pattern for each layer from the bound's own prices, packed into windows, and annealed."""

import itertools
import math
import random
import time
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter

import numpy as np

from solvers.engines import ModelBuilder, solve
from solvers.ir.solution import Limits
from solvers.recompute.graph.answers import Search
from solvers.recompute.graph.opt.bound.patterns import (
    ENUMERATED,
    LayerView,
    Pattern,
    Prices,
    all_patterns,
    grown_patterns,
    leanest,
)
from solvers.recompute.graph.opt.bound.tree import BoundSearch, memory_unit
from solvers.recompute.graph.opt.bound.windows import packings
from solvers.recompute.graph.opt.layers import Layers
from solvers.recompute.graph.opt.planning.neighbourhoods import NODES, Neighbourhoods, Start
from solvers.recompute.graph.opt.planning.pack import Packing
from solvers.recompute.graph.replay import replay, retained

FEW, MANY = 60, 300
"""Candidate patterns of a layer; the top two have many, since they decide the peak."""
MARGINS = (0, 1, 2, 4, 8, 16, 32)
"""How far the budgets of the first plans lie below the true one, in 1/400 of what layers can keep."""
MOST_PACKINGS, COUNTING_S = 2000, 3.0
COOLING = 300
"""The annealing begins at the overhead of the first plan divided by this, and ends near zero."""
CHEAPEST = 8
"""Cheapest patterns that an exactly planned layer chooses among."""
ANNEALING = 0.2
"""The share of the time that counts and annealing may take; neighbourhoods have the rest."""
EVALUATIONS = 700
"""Annealed plans that one unit of deterministic work allows."""
STARTS = 3
"""Plans of different cost that are handed to the polishing, as they were counted: annealed ones end in one valley."""
SHARES = (0.1, 0.25, 0.5)
"""Prices of a window, in shares of the time that it hides, at which patterns are looked for beside the bound's own."""
BUILDING_S = 0.002
"""Seconds an op that the neighbourhoods' model takes to be built, about; where less is left, none is."""
NEAREST = 6
"""Plans from which neighbourhoods may begin."""
NEAR = 12
"""Number of most similar patterns among which a pattern is exchanged."""
Packed = tuple[list[int], list[set[int]]]
"""A pattern index for each layer, and what is computed again, by stage."""


class LayeredPlanner:
    """Offers the search plans of a layered graph: one pattern index for each layer."""

    def __init__(self, search: Search, layers: Layers, bounds: BoundSearch, engine: str) -> None:
        self.search, self.given, self.layers, self.bounds, self.engine = search, search.given, layers, bounds, engine
        self.view = LayerView(self.given, layers, max(0, layers.count - 2))
        self.prices = bounds.prices()
        given = self.given
        self.windows = [t for t in range(layers.end, len(given)) if given.comm[t]]
        self.patterns = self._candidates()
        self.kept = [self.view.kept_bytes(pattern) for pattern in self.patterns]
        self.first_uses = [min((u for u in users if u >= layers.end), default=None) for users in given.users]
        self.neighbours: dict[tuple[int, bool], list[int]] = {}
        self.least: tuple[float, Packed] | None = None
        self.valid: Packed | None = None
        self.counts: dict[tuple[int, ...], tuple[float, Packed]] = {}
        self.starts: list[tuple[int, list[set[int]]]] = []
        self.counting = True
        self._always = [self.patterns.index(frozenset()), self.patterns.index(leanest(self.view))]

    def run(self, time_s: float) -> None:
        """Counts of patterns first, then their order and exchange, then a few layers at a time exactly."""
        began = time.perf_counter()
        deadline = began + (ANNEALING if self.search.limits.work is None else 1.0) * time_s
        for margin in MARGINS:
            if self.search.done() or time.perf_counter() >= deadline:
                break
            for vector in self._counted(margin, deadline):
                for top in (vector[-1], *self._of_the_top()):
                    self._take([*vector[:-1], top])
        self.counting = False
        self._anneal(deadline)
        starts = self._nearest()
        left = began + time_s - time.perf_counter()
        too_late = self.search.limits.work is None and left < BUILDING_S * len(self.given)
        if starts and not too_late and not self.search.done():
            choices = [self._choices(layer, starts) for layer in range(self.layers.count)]
            known = [Start([self.patterns[p] for p in vector], plan) for vector, plan in starts]
            Neighbourhoods(self.search, self.layers, choices, known, self.engine).run(began + time_s)

    def _candidates(self) -> list[Pattern]:
        """The cheapest at the bound's prices and at others in turn, for where windows are ample its prices are zero."""
        each = [self._cheapest(prices) for prices in (self.prices, *self._other_prices())]
        found = list(dict.fromkeys(one for rank in itertools.zip_longest(*each) for one in rank if one is not None))
        top = [self.view.closed(one) for one in self.bounds.computed_again(self.layers.lists[-1])]
        return list(dict.fromkeys([*found[:FEW], frozenset(), leanest(self.view), *found[FEW:MANY], *top]))

    def _cheapest(self, prices: Prices) -> list[Pattern]:
        if self.layers.size <= ENUMERATED:
            return all_patterns(self.view, prices, MANY)
        return grown_patterns(self.view, prices, self.bounds.patterns(self.layers.lists[0]), MANY)

    def _other_prices(self) -> list[Prices]:
        """Memory at what the ops cost a byte on average, and at less than any that no window hides; windows at shares.

        A window costs a share of the time that it hides.
        """
        given = self.given
        largest = max((given.time[w] for w in self.windows), default=0)
        again = [i for i in self.view.ops if given.size[i] > 0 and given.replay[i] and not given.comm[i]]
        hidden = {given.time[i] for i in again if given.time[i] <= largest}
        exposed = [given.time[i] / given.size[i] for i in again if given.time[i] > largest]
        if not hidden:
            return []
        average = sum(given.time[i] for i in again) / sum(given.size[i] for i in again)
        bytes_ = (average, 0.9 * min(exposed, default=average))
        return [Prices(byte, {time: share * time for time in hidden}) for byte in bytes_ for share in SHARES]

    def _of_the_top(self) -> list[int]:
        """The patterns that the bound gives the top layer, which it sees stage by stage."""
        found = (self.view.closed(one) for one in self.bounds.computed_again(self.layers.lists[-1]))
        return [self.patterns.index(pattern) for pattern in dict.fromkeys(found)]

    @cached_property
    def _few(self) -> int:
        return min(len(self.patterns), FEW + 2)

    # -- how many layers have which pattern

    @cached_property
    def _room_bytes(self) -> int:
        """What the layers may keep at the stage behind them where the rest of the graph needs most."""
        given, layers = self.given, self.layers
        level = [0] * (len(given) + 1)
        for t, run in enumerate(retained(given, [()] * len(given))):
            for i, until in run.items():
                if not layers.first <= i < layers.end:
                    level[t] += given.size[i]
                    level[max(t, until) + 1] -= given.size[i]
        rest = np.cumsum(level)[layers.end : self.bounds.relaxation.shape.cut + 1]
        return given.budget - given.static - int(rest.max(initial=0))

    def _counted(self, margin: int, deadline: float) -> list[list[int]]:
        """Counts that are best if windows are only a supply of packings; the layers that keep most on top."""
        given, view, count = self.given, self.view, self.layers.count
        left = deadline - time.perf_counter()
        if left <= 0:
            return []
        few = range(self._few)
        times = [given.time[i] for i in view.ops]
        largest = max((given.time[w] for w in self.windows), default=0)
        hideable = [k for k, i in enumerate(view.ops) if not given.comm[i] and 0 < times[k] <= largest]
        builder = ModelBuilder("pattern-counts")
        chosen = builder.columns(
            len(few), 0, count, integer=True, cost=[sum(times[k] for k in self.patterns[p]) for p in few]
        )
        builder.row(chosen, 1.0, count, count)
        unit = memory_unit(given)
        room = self._room_bytes - margin * count * max(self.kept) // 400
        builder.row(chosen, [self.kept[p] / unit for p in few], upper=room / unit)
        supply: dict[int, list[tuple[int, int]]] = {}
        for capacity in {given.time[w] for w in self.windows}:
            fitting = sorted({times[k] for k in hideable if times[k] <= capacity})
            options = packings(fitting, capacity, MOST_PACKINGS) or []
            amounts = builder.columns(len(options), 0, count * len(self.windows), integer=True).tolist()
            if amounts:
                builder.row(amounts, 1.0, upper=sum(given.time[w] == capacity for w in self.windows))
            for column, option in zip(amounts, options, strict=True):
                for spent, copies in option.items():
                    supply.setdefault(spent, []).append((column, copies))
        for spent, terms in supply.items():
            hidden = builder.column(0, count * len(view.ops), cost=-spent)
            demand = [-float(sum(times[k] == spent for k in hideable if k in self.patterns[p])) for p in few]
            builder.row([hidden, *chosen], [1.0, *demand], upper=0.0)
            builder.row([hidden, *(c for c, _ in terms)], [1.0, *(-float(n) for _, n in terms)], upper=0.0)
        work = None if self.search.limits.work is None else NODES
        time_s = min(left, COUNTING_S) if work is None else left
        limits = Limits(time_s=time_s, gap=1e-4, seed=self.search.limits.seed, work=work)
        answer = solve(builder.build(), limits, self.engine, self.search.heard)
        self.search.stopped = self.search.stopped or answer.interrupted
        if answer.x is None:
            return []
        counts = [round(value) for value in answer.x[chosen]]
        vector = [p for p in few for _ in range(counts[p])]
        return [sorted(vector, key=lambda p: (self.kept[p], p)), sorted(vector, key=lambda p: (-self.kept[p], p))]

    # -- plans

    def _take(self, vector: Sequence[int]) -> tuple[float, list[int]]:
        """Pack and measure; bytes beyond the budget are charged, so that the search can pass through such plans."""
        again = [self.layers.op(layer, k) for layer, p in enumerate(vector) for k in self.patterns[p]]
        recomputed = Packing(self.given, again, self.first_uses, self._reach).run(self.windows)
        found = replay(self.given, recomputed)
        excess, packed = max(0, found.peak_bytes - self.given.budget), (list(vector), recomputed)
        if found.violation is None:
            known = [objective for objective, _ in self.starts]
            if found.objective_us not in known and (self.counting or not known):
                self.starts = sorted([*self.starts, (found.objective_us, recomputed)], key=itemgetter(0))[:STARTS]
            better = self.search.objective is None or found.objective_us < self.search.objective
            if better or self.valid is None:
                self.valid = packed
            if better:
                self.search.offer(recomputed)
        cost = found.objective_us - self.given.base + 3 * excess * max(self.prices.byte, 1e-7)
        if self.counting:
            self.counts[tuple(vector)] = (cost, packed)
        if self.least is None or cost < self.least[0]:
            self.least = (cost, packed)
        return cost, list(vector)

    @cached_property
    def _reach(self) -> int:
        """The most stages that anything is computed before it is due: about eight layers."""
        return 8 * max(1, (len(self.given) - self.layers.end) // self.layers.count)

    def _anneal(self, deadline: float) -> None:
        """Exchange patterns of one or two layers."""
        began, source, work = time.perf_counter(), random.Random(self.search.limits.seed), self.search.limits.work
        most = None if work is None else int(EVALUATIONS * work)
        vector = self.least[1][0] if self.least is not None else [self.patterns.index(frozenset())] * self.layers.count
        current = best = self._take(vector)
        start = max(1.0, best[0]) / COOLING
        for number in itertools.count():
            now = time.perf_counter()
            if self.search.done() or now >= deadline or number == most:
                return
            spent = (now - began) / (deadline - began) if most is None else number / most
            heat = start * (1 - spent) ** 2 + 0.01
            candidate = self._take(self._changed(current[1], source))
            change = candidate[0] - current[0]
            if change <= 0 or source.random() < math.exp(-change / heat):
                current = candidate
            if current[0] < best[0]:
                best = current
            self.search.report()

    def _changed(self, vector: Sequence[int], source: random.Random) -> list[int]:
        made, count = list(vector), self.layers.count
        kind = source.random()
        if kind < 0.25:
            a, b = source.randrange(count), source.randrange(count)
            made[a], made[b] = made[b], made[a]
            return made
        for _ in range(1 if kind < 0.5 else 2):
            layer = source.randrange(count)
            top = layer >= count - 2
            if source.random() < 0.3:
                made[layer] = source.randrange(len(self.patterns) if top else self._few)
            else:
                made[layer] = source.choice(self._near(made[layer], top))
        return made

    def _near(self, pattern: int, top: bool) -> list[int]:
        found = self.neighbours.get((pattern, top))
        if found is None:
            among = range(len(self.patterns) if top else self._few)
            mine = self.patterns[pattern]
            ranked = sorted((p for p in among if p != pattern), key=lambda p: (len(self.patterns[p] ^ mine), p))
            found = self.neighbours[pattern, top] = ranked[:NEAR] or [pattern]
        return found

    # -- what neighbourhoods begin with

    def _nearest(self) -> list[Packed]:
        """The best valid plan, then plans as they were counted: those first that cost least with what they lack."""
        counted = sorted(self.counts.values(), key=itemgetter(0))
        first = [self.valid] if self.valid is not None else [] if self.least is None else [self.least[1]]
        found = {tuple(vector): (vector, plan) for vector, plan in [*first, *(packed for _, packed in counted)]}
        return list(found.values())[:NEAREST]

    def _choices(self, layer: int, starts: Sequence[Packed]) -> list[Pattern]:
        """What a layer may have: the cheapest patterns, those of the plans; for the top layer, all."""
        used = itertools.chain.from_iterable(vector for vector, _ in starts)
        top = layer >= self.layers.count - 1
        some = range(len(self.patterns)) if top else [*range(CHEAPEST), *self._always, *used]
        return [self.patterns[p] for p in dict.fromkeys(some) if p < len(self.patterns)]
