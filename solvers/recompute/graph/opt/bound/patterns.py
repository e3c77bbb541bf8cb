"""What one layer can drop: patterns, and which of them are cheap at the prices of the relaxation.

A pattern is a set of ops of a layer that are dropped after their forward use and computed again; what the others need
is kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from solvers.recompute.graph.opt.layers import Layers
from solvers.recompute.graph.replay import Instance

ENUMERATED = 16
"""The most ops of a layer whose patterns are enumerated; those of larger layers are grown from the relaxation's."""
STEPS = 5
"""The most changes between a grown pattern and the pattern it is grown from."""
Pattern = frozenset[int]
"""Places in the layer, 0 … size − 1."""


class LayerView:
    """One layer of a graph: its ops' inputs, their uses behind the forward pass, and what patterns keep."""

    def __init__(self, given: Instance, layers: Layers, layer: int) -> None:
        self.given, self.layers, self.layer = given, layers, layer
        self.ops = layers.lists[layer]
        self.place = {i: k for k, i in enumerate(self.ops)}
        self.inputs = [[self.place[j] for j in given.inputs[i] if j in self.place] for i in self.ops]
        self.uses = [[u for u in given.users[i] if u >= layers.end] for i in self.ops]
        self.needed = [bool(uses) for uses in self.uses]

    def closed(self, pattern: Iterable[int]) -> Pattern:
        """The pattern without the outputs that nothing reads again, and without ops that must not run twice."""
        chosen = {k for k in pattern if self.given.replay[self.ops[k]]}
        for k in sorted(chosen, reverse=True):
            if not self.needed[k] and not any(k in self.inputs[child] for child in chosen if child > k):
                chosen.discard(k)
        return frozenset(chosen)

    def kept(self, pattern: Pattern) -> set[int]:
        """What must be kept for it."""
        read = {j for k in pattern for j in self.inputs[k]}
        return {k for k in range(len(self.ops)) if (self.needed[k] or k in read) and k not in pattern}

    def kept_bytes(self, pattern: Pattern) -> int:
        """The bytes of what must be kept for it."""
        return sum(self.given.size[self.ops[k]] for k in self.kept(pattern))


@dataclass(frozen=True)
class Prices:
    """What memory (µs a byte) and a window (µs, by the time that is hidden) cost, from the relaxation's duals."""

    byte: float
    windows: dict[int, float]

    def of(self, time: int, comm: bool) -> float:
        """The price of computing an op of that time again."""
        return time if comm else min(float(time), self.windows.get(time, float(time)))


def all_patterns(view: LayerView, prices: Prices, most: int) -> list[Pattern]:
    """The cheapest patterns of a layer at these prices, by trying every subset (layers of few ops)."""
    count = len(view.ops)
    masks = np.arange(1 << count, dtype=np.int64)
    has = [(masks >> k & 1).astype(bool) for k in range(count)]
    read = np.zeros(len(masks), dtype=np.int64)
    for k in range(count):
        for j in view.inputs[k]:
            read |= np.where(has[k], 1 << j, 0)
    fine = np.ones(len(masks), dtype=bool)
    score = np.zeros(len(masks))
    for k, i in enumerate(view.ops):
        is_read = (read >> k & 1).astype(bool)
        fine &= ~has[k] | ((is_read | view.needed[k]) & view.given.replay[i])
        score += has[k] * prices.of(view.given.time[i], view.given.comm[i])
        score += (~has[k] & (is_read | view.needed[k])) * (prices.byte * view.given.size[i])
    chosen = np.flatnonzero(fine)
    best = chosen[np.argsort(score[chosen], kind="stable")[:most]]
    return [frozenset(k for k in range(count) if mask >> k & 1) for mask in best.tolist()]


def grown_patterns(view: LayerView, prices: Prices, seeds: Sequence[Pattern], most: int) -> list[Pattern]:
    """The cheapest patterns that a beam finds from the seeds, one change at a time (layers of many ops)."""
    found: set[Pattern] = {view.closed(seed) for seed in seeds} | {frozenset()}
    for _ in range(STEPS):
        around = {view.closed(pattern ^ {k}) for pattern in found for k in range(len(view.ops))}
        found = set(sorted(found | around, key=lambda p: (_score(view, prices, p), sorted(p)))[: 4 * most])
    return sorted(found, key=lambda p: (_score(view, prices, p), sorted(p)))[:most]


def leanest(view: LayerView) -> Pattern:
    """A pattern that keeps little: ops leave, from the last to the first, where that frees memory."""
    pattern: Pattern = frozenset()
    size = [view.given.size[i] for i in view.ops]
    for k in sorted(range(len(view.ops)), key=lambda k: -size[k]) * 2:
        candidate = view.closed(pattern | {k})
        if view.kept_bytes(candidate) < view.kept_bytes(pattern):
            pattern = candidate
    return pattern


def _score(view: LayerView, prices: Prices, pattern: Pattern) -> float:
    given = view.given
    again = sum(prices.of(given.time[view.ops[k]], given.comm[view.ops[k]]) for k in pattern)
    return again + prices.byte * view.kept_bytes(pattern)
