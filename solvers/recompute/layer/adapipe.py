"""`adapipe`: a knapsack of computation units for a stage's memory, by dynamic programming (AdaPipe, 2024)."""

import time
from collections.abc import Callable, Sequence
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
AT_ONCE = 4_000_000
"""Pairs that are made at once, between two looks at the limits."""
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
        nothing = [on_critical_path(layer).group(problem.layers)]
        try:
            counts = _counts(units, problem, ask.room_bytes, lambda: _stop(ask, watch))
        except _Stopped as stopped:
            said = f"{stopped} ended the search before its end: this is every unit again"
            return ask.feasible(nothing, engine=KNAPSACK, reason=said) if ask.fits(nothing) else ask.unknown(said)
        if counts is None:
            return ask.ruled(nothing, KNAPSACK)
        return ask.feasible(_groups(layer, units, counts, problem.layers), engine=KNAPSACK)


class _Stopped(Exception):
    """The time is up, or the watch has said stop; the text names which."""


def _stop(ask: Ask, watch: Watch | None) -> None:
    """Raise where the search must end."""
    if watch is not None and watch(None, None, ask.elapsed_s):
        raise _Stopped("its watch")
    if ask.elapsed_s > ask.limits.time_s:
        raise _Stopped(f"the time limit of {ask.limits.time_s} s")


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


def _counts(
    units: Sequence[Unit], problem: RecomputeLayerProblem, room_bytes: int, ask_to_stop: Callable[[], None]
) -> list[int] | None:
    """For each unit the number of layers that store it; None where nothing fits.

    After each unit the nondominated (bytes, time) pairs, with the pair before and the count that led to each.
    """
    count = np.arange(problem.layers + 1)
    states = _States.first()
    steps: list[_States] = []
    for unit in units:
        stored = problem.inflight_microbatches * unit.stored_bytes * count
        cost = stored + np.where(count < problem.layers, unit.again_bytes, 0)
        time_us = unit.time_us * (problem.layers - count)
        before, states = states, _States.none()
        width = max(1, AT_ONCE // max(1, len(before.used)))
        for start in range(0, len(count), width):
            ask_to_stop()
            part = slice(start, start + width)
            states = states.joined(before.after(cost[part], time_us[part], start)).better(room_bytes)
        states = states.thinned(room_bytes)
        steps.append(states)
    if not len(states.used) or room_bytes < 0:
        return None
    place, found = int(states.time_us.argmin()), []
    for step in reversed(steps):
        found.append(int(step.number[place]))
        place = int(step.parent[place])
    return found[::-1]


@dataclass(frozen=True)
class _States:
    """Pairs of bytes and time, each with its place among the pairs before and the count that led to it."""

    used: IntArray
    time_us: IntArray
    parent: IntArray
    number: IntArray

    @classmethod
    def none(cls) -> "_States":
        """No pair."""
        return cls(*(np.zeros(0, dtype=np.int64) for _ in range(4)))

    @classmethod
    def first(cls) -> "_States":
        """Before any unit."""
        return cls(*(np.zeros(1, dtype=np.int64) for _ in range(4)))

    def after(self, cost: IntArray, time_us: IntArray, first: int) -> "_States":
        """Each pair with each of these counts, which begin at `first`."""
        parent, number = divmod(np.arange(len(self.used) * len(cost)), len(cost))
        return _States(
            np.add.outer(self.used, cost).ravel(), np.add.outer(self.time_us, time_us).ravel(), parent, number + first
        )

    def joined(self, other: "_States") -> "_States":
        """These pairs, then the others."""
        pairs = zip(self._columns(), other._columns(), strict=True)
        return _States(*(np.concatenate(pair) for pair in pairs))

    def better(self, room_bytes: int) -> "_States":
        """Those within the room that no other one beats, by ascending bytes."""
        order: IntArray = np.lexsort([self.time_us, self.used])
        order = order[self.used[order] <= room_bytes]
        fastest = np.minimum.accumulate(self.time_us[order])
        return self._taken(order[np.concatenate([[True], fastest[1:] < fastest[:-1]])[: len(order)]])

    def thinned(self, room_bytes: int) -> "_States":
        """The last pair in each cell of a grid of bytes, where they are many."""
        if len(self.used) <= MAX_STATES:
            return self
        cell = self.used // max(1, room_bytes // MAX_STATES)
        return self._taken(np.flatnonzero(np.concatenate([cell[1:] != cell[:-1], [True]])))

    def _taken(self, places: IntArray) -> "_States":
        return _States(*(column[places] for column in self._columns()))

    def _columns(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        return self.used, self.time_us, self.parent, self.number


def _groups(layer: Layer, units: Sequence[Unit], counts: Sequence[int], layers: int) -> list[LayerGroup]:
    """Layers that store the same units, as groups: a unit is stored in the first x layers."""
    cuts = sorted({0, layers, *counts})
    groups = []
    for start, stop in pairwise(cuts):
        stored = [i for unit, count in zip(units, counts, strict=True) if count > start for i in unit.needed]
        groups.append(on_critical_path(layer, stored).group(stop - start))
    return groups
