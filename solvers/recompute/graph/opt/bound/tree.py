"""A certified bound from the cut relaxation: branch and bound whose leaves carry their duals (README, model K).

The bound is not what a float engine says, but what the leaves' duals add up to in integers; `bayplan check` adds them
up again. It is valid at any moment: the leaves always cover the whole space.

One file: the tree, its leaves and their duals share one state.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np

from solvers.engines import LinearModel, ModelBuilder, solve
from solvers.engines.duals import UNIT, whole_dual
from solvers.engines.model import FloatArray
from solvers.ir.solution import Limits, Status
from solvers.recompute.graph.opt.bound.cut import CutRelaxation, Key, text
from solvers.recompute.graph.opt.bound.patterns import Pattern, Prices
from solvers.recompute.graph.opt.bound.windows import packed, packings
from solvers.recompute.graph.replay import Instance

MOST_PACKINGS = 300
"""A zone with more maximal packings of its windows than this is bounded by times and thresholds instead."""
FINE = 2**14
"""The linear models count memory in units of some 1/FINE of the budget."""
FINE_TIME = 22
"""They count time so that the base has this many binary digits."""
FORM = "cut-relaxation/1"


@dataclass(frozen=True)
class Leaf:
    """A part of the space: limits on some columns, duals that bound it, and the bound in 1/unit µs over the base."""

    limits: Mapping[Key, tuple[int, int]]
    duals: Mapping[Key, int]
    weights: Mapping[int, Mapping[int, int]]
    bound: int
    unit: int

    @property
    def bound_us(self) -> int:
        """The least whole microsecond over the base that it proves."""
        return -(-self.bound // self.unit)


@dataclass(order=True)
class _Node:
    bound: int
    number: int
    leaf: Leaf = field(compare=False)
    branch: tuple[Key, int] | None = field(compare=False)


class BoundSearch:
    """Branch and bound on one relaxation; `bound_us` (over the base) only grows.

    `interrupted` tells whether Ctrl-C ended one of its solves.
    """

    def __init__(self, relaxation: CutRelaxation, engine: str = "auto") -> None:
        self.relaxation, self.engine = relaxation, engine
        self.memory_unit = memory_unit(relaxation.given)
        self.time_unit, self.unit = time_units(relaxation.given)
        self.keys = list(relaxation.columns)
        self.place = {key: number for number, key in enumerate(self.keys)}
        self.row_keys: list[Key] = list(relaxation.rows)
        builder = _Builder(self)
        self.model, self._packing_rows = builder.build()
        self.penalty, self.shared_slack = builder.penalty, builder.shared_slack
        self.nodes: list[_Node] = []
        self.closed: list[Leaf] = []
        self._whole_us = math.inf
        self.values: FloatArray | None = None
        self.first = Leaf({}, {}, {}, 0, self.unit)
        self._numbers = itertools.count()
        self.engine_used, self.interrupted = engine, False

    @property
    def bound_us(self) -> int:
        """What all leaves prove together."""
        open_leaves = [node.leaf for node in self.nodes[:1]]
        return min((leaf.bound_us for leaf in (*self.closed, *open_leaves)), default=0)

    @property
    def leaves(self) -> int:
        """How many leaves the tree has so far."""
        return len(self.closed) + len(self.nodes)

    def root(self, time_s: float) -> bool:
        """Solve the relaxation of the whole space; answers whether that succeeded in time."""
        node = self._node({}, time_s)
        if node is not None:
            self.first = node.leaf
            heapq.heappush(self.nodes, node)
        return node is not None

    def prices(self) -> Prices:
        """What memory at the cut and windows cost at the root of the tree."""
        leaf = self.first
        byte = -leaf.duals.get(("memory", self.relaxation.shape.cut), 0) / self.unit
        windows: dict[int, float] = {}
        for prices in leaf.weights.values():
            for spent, worth in prices.items():
                windows[spent] = min(windows.get(spent, math.inf), worth / self.unit)
        return Prices(byte, windows)

    def patterns(self, layer: Sequence[int]) -> list[Pattern]:
        """What the relaxation drops of such a layer, as patterns: op k in the q-th if at least q layers drop it.

        The rows of a class are differences of columns, so each of these patterns keeps what it is computed from.
        """
        assert self.values is not None
        found: dict[Pattern, None] = {}
        for g, layers in enumerate(self.relaxation.shape.groups):
            if tuple(layer) not in layers:  # what runs before the layers is a group, too
                continue
            dropped = [self.values[self.place["y", g, k]] for k in range(len(layers[0]))]
            for least in sorted({round(value, 6) for value in dropped if value > 1e-6}):
                found[frozenset(k for k, value in enumerate(dropped) if value >= least - 1e-6)] = None
        return list(found)

    def computed_again(self, ops: Sequence[int]) -> list[Pattern]:
        """What the relaxation computes again of ops seen stage by stage, as places in `ops`: likeliest first."""
        assert self.values is not None
        amounts = [0.0] * len(ops)
        place = {i: k for k, i in enumerate(ops)}
        for key in self.keys:
            if key[0] == "r" and key[2] in place:
                amounts[place[int(key[2])]] += float(self.values[self.place[key]])
        levels = sorted({round(amount, 6) for amount in amounts if amount > 1e-6}, reverse=True)
        return [frozenset(k for k, amount in enumerate(amounts) if amount >= level - 1e-6) for level in levels]

    def missing_bytes(self, time_s: float) -> int:
        """Bytes by which the budget lies below what every plan needs, at least; 0 if the relaxation has a point."""
        if self.bound_us < self.penalty * self.time_unit or time_s <= 0:
            return 0
        cost = np.zeros(self.model.columns)
        cost[self.shared_slack] = 1.0
        upper = self.model.upper.copy()
        upper[len(self.keys) : self.shared_slack] = 0.0
        answer = solve(replace(self.model, cost=cost, upper=upper), Limits(time_s=time_s), self.engine)
        bound = None if answer.status is not Status.OPTIMAL else answer.bound
        return 0 if bound is None else max(0, math.floor(bound * self.memory_unit * (1 - 1e-6)) - 1)

    def run(
        self,
        target_us: Callable[[], float],
        deadline: float,
        most_leaves: int,
        stop: Callable[[], bool],
        patience: float = math.inf,
    ) -> None:
        """Branch until the bound meets the target (µs over the base), the time or the leaves run out, or `stop`.

        It also ends where the bound can grow no more, and where it has not grown for so many leaves (`patience`).
        """
        grown = (self.bound_us, self.leaves)
        while self.nodes and self.leaves < min(most_leaves, grown[1] + patience):
            best = self.nodes[0]
            if best.leaf.bound_us >= min(target_us(), self._whole_us) or time.perf_counter() >= deadline or stop():
                return
            heapq.heappop(self.nodes)
            if best.branch is None:
                self.closed.append(best.leaf)
                self._whole_us = min(self._whole_us, best.leaf.bound_us)  # no branching elsewhere raises the bound
                continue
            if not self._split(best, deadline):
                heapq.heappush(self.nodes, best)
                return
            grown = max(grown, (self.bound_us, self.leaves), key=itemgetter(0))

    def _split(self, node: _Node, deadline: float) -> bool:
        assert node.branch is not None
        key, floor = node.branch
        low, high = node.leaf.limits.get(key, (0, self.relaxation.columns[key].upper))
        made = []
        for part in ((low, floor), (floor + 1, high)):
            half = self._node({**node.leaf.limits, key: part}, deadline - time.perf_counter(), node.leaf)
            if half is None:
                return False
            made.append(half)
        for half in made:
            heapq.heappush(self.nodes, half)
        return True

    def _node(self, limits: Mapping[Key, tuple[int, int]], time_s: float, parent: Leaf | None = None) -> _Node | None:
        """Solve one part; its bound is never worse than that of the part it was split from. None if time is short."""
        if time_s <= 0:
            return None
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        for key, (low, high) in limits.items():
            lower[self.place[key]], upper[self.place[key]] = low, high
        answer = solve(replace(self.model, lower=lower, upper=upper), Limits(time_s=time_s), self.engine)
        self.interrupted = self.interrupted or answer.interrupted
        if answer.status is not Status.OPTIMAL or answer.row_duals is None or answer.x is None:
            return None
        self.engine_used = answer.engine
        duals, weights = self._prices(answer.row_duals)
        leaf = Leaf(limits, duals, weights, self._add_up(limits, duals, weights), self.unit)
        if parent is not None and parent.bound > leaf.bound:
            leaf = replace(parent, limits=limits)
        if not limits:
            self.values = answer.x
        return _Node(leaf.bound, next(self._numbers), leaf, self._branch(answer.x, limits))

    def _prices(self, row_duals: FloatArray) -> tuple[dict[Key, int], dict[int, dict[int, int]]]:
        """Duals as integers, of the sign that their row allows; the packing rows' as weights by zone and time."""
        duals: dict[Key, int] = {}
        for key, value in zip(self.row_keys, row_duals.tolist(), strict=False):
            whole = whole_dual(value / self.memory_unit if key[0] == "memory" else value)
            row = self.relaxation.rows[key]
            if whole and (row.lower is not None if whole > 0 else row.upper is not None):
                duals[key] = whole
        weights: dict[int, dict[int, int]] = {}
        for number, parts in self._packing_rows:
            value = round(abs(row_duals[number]) * UNIT)
            for zone, spent, factor in parts if value else ():
                found = weights.setdefault(zone, {})
                found[spent] = found.get(spent, 0) + value * factor
        return duals, weights

    def _add_up(
        self,
        limits: Mapping[Key, tuple[int, int]],
        duals: Mapping[Key, int],
        weights: Mapping[int, Mapping[int, int]],
    ) -> int:
        """The bound over the base that the prices prove, in 1/unit µs: all in integers."""
        relaxation = self.relaxation
        reduced = {key: column.cost * self.unit for key, column in relaxation.columns.items()}
        total = 0
        for key, dual in duals.items():
            row = relaxation.rows[key]
            side = row.lower if dual > 0 else row.upper
            assert side is not None
            total += dual * side
            for name, value in row.terms.items():
                reduced[name] -= dual * value
        for zone, prices in weights.items():
            for window in relaxation.windows(zone):
                total -= packed(prices, relaxation.given.time[window])
            for (place, spent), terms in relaxation.covers.items():
                if place == zone and spent in prices:
                    for name in terms:
                        reduced[name] += prices[spent]
        for name, value in reduced.items():
            low, high = limits.get(name, (0, relaxation.columns[name].upper))
            total += value * (low if value > 0 else high)
        return total

    def _branch(self, x: FloatArray, limits: Mapping[Key, tuple[int, int]]) -> tuple[Key, int] | None:
        """The column to split, counted layers first, and where; None where all are whole."""
        if not self.keys:
            return None
        values = x[: len(self.keys)]
        fraction = values - np.floor(values)
        distance = np.minimum(fraction, 1 - fraction)
        ranked = np.where(self._ranks() > 0, distance * self._ranks(), 0.0)
        place = int(np.argmax(ranked))
        return (self.keys[place], math.floor(values[place])) if distance[place] > 1e-6 else None

    def _ranks(self) -> FloatArray:
        rank = {"y": 100.0, "z": 100.0, "r": 10.0, "s": 10.0, "h": 1.0, "q": 0.1, "e": 10.0, "a": 20.0}
        return np.array([rank[str(key[0])] for key in self.keys])

    def certificate(self) -> dict[str, Any]:
        """The shape, and the leaves with their prices: all that is needed to add the bound up again."""
        shape = self.relaxation.shape
        return {
            "form": FORM,
            "unit": self.unit,
            "cut": shape.cut,
            "first": shape.first,
            "last": shape.last,
            "explicit": list(shape.explicit),
            "groups": [[list(layer) for layer in layers] for layers in shape.groups],
            "zones": list(shape.zones),
            "peaks": list(shape.peaks),
            "leaves": [_leaf_text(leaf) for leaf in (*self.closed, *(node.leaf for node in self.nodes))],
        }


def _leaf_text(leaf: Leaf) -> dict[str, Any]:
    return {
        "limits": {text(key): list(pair) for key, pair in leaf.limits.items()},
        "duals": {text(key): value for key, value in leaf.duals.items()},
        "windows": {str(zone): {str(t): w for t, w in prices.items()} for zone, prices in leaf.weights.items()},
    }


def memory_unit(given: Instance) -> int:
    """Bytes that count as one in linear models, a power of two: engines' tolerances suit numbers of thousands."""
    return 1 << max(0, (given.budget // FINE).bit_length() - 1)


def time_units(given: Instance) -> tuple[float, int]:
    """Microseconds that count as one in the costs of linear models, a power of two, and the unit of its duals.

    The base becomes some millions, whatever the unit of time, as engines' tolerances are absolute. Duals are whole in
    1/UNIT of that; the certificate's `unit` is how many of these make a microsecond.
    """
    halvings = min(UNIT.bit_length() - 1, given.base.bit_length() - FINE_TIME)
    return 2.0**halvings, UNIT >> halvings if halvings >= 0 else UNIT << -halvings


class _Builder:
    """The relaxation as a linear model: its rows, then packings of windows; elastic rows may be broken at a price."""

    def __init__(self, search: BoundSearch) -> None:
        self.relaxation, self.place, self.keys, self.unit = (
            search.relaxation,
            search.place,
            search.keys,
            search.memory_unit,
        )
        self.time_unit = search.time_unit
        self.builder = ModelBuilder("cut-relaxation")
        self.penalty = 10.0 * max(1, self.relaxation.given.base) / self.time_unit
        self.shared_slack = 0

    def build(self) -> tuple[LinearModel, list[tuple[int, list[tuple[int, int, int]]]]]:
        columns = [self.relaxation.columns[key] for key in self.keys]
        self.builder.columns(
            len(columns),
            0,
            [column.upper for column in columns],
            cost=[column.cost / self.time_unit for column in columns],
        )
        self._rows()
        packing_rows = [entry for zone in range(len(self.relaxation.shape.zones)) for entry in self._zone(zone)]
        return self.builder.build(), packing_rows

    def _rows(self) -> None:
        rows, places, values, lower, upper = [], [], [], [], []
        loose = [key for key, row in self.relaxation.rows.items() if row.elastic and key[0] != "memory"]
        places_of = dict(zip(loose, self.builder.columns(len(loose), cost=self.penalty).tolist(), strict=True))
        self.shared_slack = self.builder.column(cost=self.penalty)
        for number, (key, row) in enumerate(self.relaxation.rows.items()):
            unit = self.unit if key[0] == "memory" else 1
            terms = [(self.place[name], value / unit) for name, value in row.terms.items()]
            if row.elastic:
                terms.append((places_of.get(key, self.shared_slack), 1.0 if row.lower is not None else -1.0))
            for place, value in terms:
                rows.append(number)
                places.append(place)
                values.append(value)
            lower.append(-np.inf if row.lower is None else row.lower / unit)
            upper.append(np.inf if row.upper is None else row.upper / unit)
        self.builder.rows(rows, places, values, lower, upper, count=len(lower))

    def _zone(self, zone: int) -> list[tuple[int, list[tuple[int, int, int]]]]:
        """Rows of one zone, with the weights that their duals give: (zone, time, factor)."""
        covers = {spent: list(terms) for (place, spent), terms in self.relaxation.covers.items() if place == zone}
        windows = self.relaxation.windows(zone)
        if not covers or not windows:
            return []
        capacities = [self.relaxation.given.time[t] for t in windows]
        found = {
            capacity: packings([t for t in covers if t <= capacity], capacity, MOST_PACKINGS)
            for capacity in set(capacities)
        }
        if any(options is None for options in found.values()):
            return self._by_thresholds(zone, covers, capacities)
        return self._by_packings(zone, covers, capacities, {c: options or [] for c, options in found.items()})

    def _by_packings(
        self, zone: int, covers: dict[int, list[Key]], capacities: list[int], found: dict[int, list[dict[int, int]]]
    ) -> list[tuple[int, list[tuple[int, int, int]]]]:
        supply: dict[int, list[tuple[int, int]]] = {spent: [] for spent in covers}
        for capacity, options in found.items():
            counts = self.builder.columns(len(options)).tolist()
            if options:
                self.builder.row(counts, 1.0, upper=capacities.count(capacity))
            for place, option in zip(counts, options, strict=True):
                for spent, copies in option.items():
                    supply[spent].append((place, copies))
        made = []
        for spent, names in covers.items():
            places = [place for place, _ in supply[spent]] + [self.place[name] for name in names]
            values = [float(copies) for _, copies in supply[spent]] + [-1.0] * len(names)
            made.append((self.builder.row(places, values, lower=0.0), [(zone, spent, 1)]))
        return made

    def _by_thresholds(
        self, zone: int, covers: dict[int, list[Key]], capacities: list[int]
    ) -> list[tuple[int, list[tuple[int, int, int]]]]:
        """The time of all windows, and: of recomputations longer than 1/q of a window it holds at most q − 1."""
        largest = max(capacities)
        weighings = [({spent: spent for spent in covers}, sum(capacities))]
        for q in (2, 3, 4):
            chosen = {spent: 1 for spent in covers if spent * q > largest}
            weighings.append((chosen, (q - 1) * len(capacities)))
        made = []
        for factors, limit in weighings:
            places = [self.place[name] for spent in factors for name in covers[spent]]
            values = [float(factors[spent]) for spent in factors for _ in covers[spent]]
            if places:
                row = self.builder.row(places, values, upper=limit)
                made.append((row, [(zone, spent, factor) for spent, factor in factors.items()]))
        return made
