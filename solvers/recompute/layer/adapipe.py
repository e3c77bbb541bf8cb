"""`adapipe`: a knapsack of computation units for a stage's memory, by dynamic programming (AdaPipe, 2024)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from solvers.ir.recompute import LayerGroup, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Watch
from solvers.recompute.layer.answers import TOO_LARGE, Ask
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.pareto import IntArray
from solvers.recompute.layer.policies import on_critical_path

MAX_STATES = 20_000
"""(bytes, time) pairs that are kept; beyond, bytes are rounded up to a grid, as AdaPipe does throughout."""
KNAPSACK = "dynamic programming"


@dataclass(frozen=True)
class Unit:
    """Ops that are recomputed together: needed ones, and those that only they are computed from."""

    needed: tuple[int, ...]
    time_us: int
    stored_bytes: int
    again_bytes: int


@dataclass(frozen=True)
class AdaPipe:
    """How many layers store each computation unit, everything else being recomputed on the critical path.

    A unit is stored in the first x layers of the stage; x is chosen for all units together so that the time is least
    within the stage's memory (README, A). FEASIBLE with bound None (OPTIMAL where everything fits), or UNKNOWN where
    recomputing every unit does not fit.
    """

    NAME = "adapipe"

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """The best plan of this family."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        if ask.too_large:
            return ask.unknown(TOO_LARGE)
        layer = Layer.of(problem)
        units = units_of(layer)
        counts = _counts(units, problem, ask.room_bytes)
        nothing = [on_critical_path(layer).group(problem.layers)]
        if counts is None:
            return ask.ruled(nothing, KNAPSACK)
        return ask.feasible(_groups(layer, units, counts, problem.layers), engine=KNAPSACK)


def units_of(layer: Layer) -> list[Unit]:
    """The layer's units: a needed op with the ops, not needed themselves, that it is computed from."""
    home = {i: i for i in layer.useful}
    for i in reversed(layer.useful):
        for j in layer.ops[i].inputs:
            if not layer.ops[j].needed:
                old, new = home[j], home[i]
                home = {op: (new if unit in (old, j) else unit) for op, unit in home.items()}
    return [_unit(layer, [i for i in layer.useful if home[i] == unit]) for unit in sorted(set(home.values()))]


def _unit(layer: Layer, ops: list[int]) -> Unit:
    needed = tuple(i for i in ops if layer.ops[i].needed)
    return Unit(
        needed=needed,
        time_us=sum(layer.ops[i].time_us for i in ops),
        stored_bytes=sum(layer.ops[i].output_bytes for i in needed),
        again_bytes=sum(layer.again(i) for i in ops),
    )


def _counts(units: Sequence[Unit], problem: RecomputeLayerProblem, room_bytes: int) -> list[int] | None:
    """For each unit the number of layers that store it; None where nothing fits.

    After each unit the nondominated (bytes, time) pairs, with the count that led to each.
    """
    count = np.arange(problem.layers + 1)
    used, time_us = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    steps: list[tuple[IntArray, IntArray]] = []
    for unit in units:
        stored = problem.inflight_microbatches * unit.stored_bytes * count
        cost = stored + np.where(count < problem.layers, unit.again_bytes, 0)
        used = np.add.outer(used, cost).ravel()
        time_us = np.add.outer(time_us, unit.time_us * (problem.layers - count)).ravel()
        kept = _thinned(used, time_us, room_bytes)
        used, time_us = used[kept], time_us[kept]
        steps.append(divmod(kept, len(count)))
    if not len(used) or room_bytes < 0:
        return None
    place, found = int(time_us.argmin()), []
    for parent, number in reversed(steps):
        found.append(int(number[place]))
        place = int(parent[place])
    return found[::-1]


def _thinned(used: IntArray, time_us: IntArray, room_bytes: int) -> IntArray:
    """The pairs within the room that no other one beats, by ascending bytes; on a grid of bytes where they are many."""
    order: IntArray = np.lexsort([time_us, used])
    order = order[used[order] <= room_bytes]
    fastest = np.minimum.accumulate(time_us[order])
    better = np.concatenate([[True], fastest[1:] < fastest[:-1]])[: len(order)]
    order = order[better]
    if len(order) <= MAX_STATES:
        return order
    cell = used[order] // max(1, room_bytes // MAX_STATES)
    last_of_cell: IntArray = order[np.concatenate([cell[1:] != cell[:-1], [True]])]
    return last_of_cell


def _groups(layer: Layer, units: Sequence[Unit], counts: Sequence[int], layers: int) -> list[LayerGroup]:
    """Layers that store the same units, as groups: a unit is stored in the first x layers."""
    cuts = sorted({0, layers, *counts})
    groups = []
    for start, stop in pairwise(cuts):
        stored = [i for unit, count in zip(units, counts, strict=True) if count > start for i in unit.needed]
        groups.append(on_critical_path(layer, stored).group(stop - start))
    return groups
