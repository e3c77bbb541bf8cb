"""Which splits of the layers let a pipeline end in time: the best of them, or none (README, proofs 1, 2 and 4).

One file: the ways in are few lines each around one search.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.replan.estimate.pipeline import pipeline_us
from solvers.replan.exact.bounds import IntArray, StageLimits, extras
from solvers.replan.exact.responses import Responses, narrowest, respond, undominated
from solvers.replan.exact.start import level_split
from solvers.replan.progress import Effort, Stop, never

LARGEST = 40
"""Responses of more microbatches than this are not compared: they cost the cube of it."""
WITNESSES = 64
"""Partial splits kept at first: one good split is enough where the limit is loose."""
_FEW = WITNESSES
"""Up to this many partial splits it is cheaper to continue than to judge them by their pipeline time."""
DEAR = 300_000
"""Searches are dear where stages times microbatches cubed (squared if responses are not compared) are more."""
_TIGHTER, _PARTS = 4, 4
"""So many limits, and so many ways between filling the last and the first stages, are tried before any search."""
_CELLS = 2**23
"""Entries of responses held at once."""
_DEAR = 2**61
"""More than any split costs."""
_WIDE, _ASKED = 0.5, 0.75
"""Shares of the effort: for searches that keep more than `WITNESSES`, and for any."""
_LEVEL, _ENTRIES, _PASSES = 120, 100, 250
"""What comparing responses costs, in microseconds; entries of responses, and microbatches of stages, in one."""


@dataclass(frozen=True)
class Splits:
    """Splits [number, stage] within a limit, their times [number], and whether a best one must be among them.

    `whatever_fullest`: the limit on the fullest stage left nothing out.
    """

    layers: IntArray
    times_us: IntArray
    complete: bool
    whatever_fullest: bool = False


@dataclass(frozen=True)
class _Partial:
    """The last stages of pipelines: their layers, how many these are, a bound on the time, and their responses."""

    layers: IntArray
    held: IntArray
    times_us: IntArray
    responses: Responses | None
    price: IntArray

    def chosen(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | IntArray) -> "_Partial":
        responses = None if self.responses is None else self.responses[which]
        return _Partial(self.layers[which], self.held[which], self.times_us[which], responses, self.price[which])


@dataclass(frozen=True)
class Placed:
    """The best split found, its time, and a bound on the time of all; no layers: memory holds no split."""

    layers: tuple[int, ...] | None
    time_us: int | None
    bound_us: int


def best_split(limits: StageLimits, depth: int, microbatches: int, most: int = 2000) -> Placed:
    """The split of all layers over `depth` stages with which the microbatches take least; proven if bound = time.

    `most` partial splits are kept at once; where these are too few, there may be a gap.
    """
    level = level_split(limits, depth, microbatches)
    if level is None:
        return Placed(None, None, 0)
    best, time_us = level, pipeline_us(limits.problem, level, microbatches)
    while True:
        found = witness_within(limits, depth, microbatches, time_us - 1, most)
        if not len(found.times_us):
            break
        best, time_us = tuple(found.layers[found.times_us.argmin()].tolist()), int(found.times_us.min())
    return Placed(best, time_us, time_us if found.complete else _relaxed_us(limits, depth, microbatches, time_us))


def _relaxed_us(limits: StageLimits, depth: int, microbatches: int, high: int) -> int:
    """The least limit, at most `high`, within which the relaxation holds all layers."""
    low = 0
    while low < high:
        middle = (low + high) // 2
        if limits.may_end(depth, microbatches, middle):
            high = middle
        else:
            low = middle + 1
    return low


def splits_within(
    limits: StageLimits,
    depth: int,
    microbatches: int,
    limit_us: int,
    most: int,
    stop: Stop = never,
    effort: Effort | None = None,
) -> Splits:
    """Splits with which the microbatches end within the limit, those left out that others do no worse.

    `complete` unless more than `most` partial ones had to be kept at once, or the search had to stop.
    """
    return _Search(limits, (depth, microbatches), limit_us, LARGEST, stop, effort).splits(most)


def witness_within(
    limits: StageLimits,
    depth: int,
    microbatches: int,
    limit_us: int,
    most: int,
    stop: Stop = never,
    effort: Effort | None = None,
) -> Splits:
    """Some of `splits_within`, at little cost where the limit is loose; all of them if `complete`.

    Where much of the effort is spent no more than `WITNESSES` partial splits are kept, where more is, none.
    """
    effort = effort or Effort()
    if effort.over(_ASKED):
        return Splits(np.zeros((0, depth), dtype=np.int64), np.zeros(0, dtype=np.int64), False)
    compared = microbatches <= LARGEST
    if most and (compared or limits.movable is None) and depth * microbatches ** (3 if compared else 2) >= DEAR:
        quick = _quick(limits, depth, microbatches, limit_us, stop, effort)
        if quick is not None:
            return quick
    found = splits_within(limits, depth, microbatches, limit_us, min(WITNESSES, most), stop, effort)
    if found.complete or len(found.times_us) or most <= WITNESSES or effort.over(_WIDE):
        return found
    return splits_within(limits, depth, microbatches, limit_us, most, lambda: stop() or effort.over(_WIDE), effort)


def _quick(
    limits: StageLimits, depth: int, microbatches: int, limit_us: int, stop: Stop, effort: Effort
) -> Splits | None:
    """Splits within the limit among a few that the relaxation allows within it or less; None: it was no use."""
    low, high = limit_us - limit_us // 4, limit_us
    while high - low > limit_us // 256:
        middle = (low + high) // 2
        low, high = (low, middle) if limits.may_end(depth, microbatches, middle) else (middle, high)
    low, some = high, dict[tuple[int, ...], None]()
    for share in range(_TIGHTER):
        if stop():
            return None
        within_us = low + (limit_us - low) * share // _TIGHTER
        search = _Search(limits, (depth, microbatches), within_us, LARGEST, stop, effort)
        some |= dict.fromkeys(filter(None, (search.filled(part) for part in range(_PARTS + 1))))
    allowed = [split for split in some if limits.allows(split)]
    if not allowed:
        return None
    layers = np.array(allowed, dtype=np.int64)
    times = limits.suffixes.times_us(layers, microbatches, whole=True, stop=stop)
    kept = times <= limit_us
    return Splits(layers[kept], times[kept], False) if kept.any() and not stop() else None


def cheap_split(
    limits: StageLimits,
    shape: tuple[int, int],
    limit_us: int,
    priced: "Priced",
    keep: int,
    stop: Stop = never,
    effort: Effort | None = None,
) -> tuple[tuple[int, ...] | None, bool]:
    """A split of this depth, so cheap, that ends in time with so many microbatches, and whether none is proven to be.

    No more than `keep` partial splits are kept at once.
    """
    search = _Search(limits, shape, limit_us, LARGEST, stop, effort, priced)
    found = search.splits(keep)
    if len(found.times_us):
        return tuple(found.layers[found.times_us.argmin()].tolist()), False
    return None, found.complete


@dataclass(frozen=True)
class Priced:
    """Only splits whose stages cost at most `most` together; prices [layers behind, own]."""

    prices: IntArray
    most: int


def every_split_within(limits: StageLimits, depth: int, microbatches: int, limit_us: int, most: int) -> Splits:
    """All splits with which the microbatches end within the limit, if `complete`."""
    return _Search(limits, (depth, microbatches), limit_us, 0, never).splits(most)


class _Search:
    """For one depth, number of microbatches and limit: how many layers fit behind and in front of each stage."""

    def __init__(
        self,
        limits: StageLimits,
        shape: tuple[int, int],
        limit_us: int,
        largest: int,
        stop: Stop,
        effort: Effort | None = None,
        priced: Priced | None = None,
    ) -> None:
        depth, microbatches = shape
        self.stop, self.effort, self.priced = stop, effort or Effort(), priced
        self.effort.spend(depth * limits.problem.layers // (9 if priced is None else 5))
        self.limits, self.depth, self.microbatches, self.limit_us = limits, depth, microbatches, limit_us
        self.comparable = microbatches <= largest
        layers = limits.problem.layers
        suffix, behind = np.arange(layers + 1, dtype=np.int64), np.arange(depth - 1, -1, -1)[:, None]
        few = limits.paths.of(depth, microbatches).table(suffix, limit_us)
        few, rooms = np.minimum(few, layers - behind - suffix), limits.rooms(depth, microbatches)[:, None]
        limited = (few > limits.fullest) & (rooms == limits.fullest) & (suffix >= behind[::-1])
        self.whatever_fullest = not limited.any()
        held = limits.held(depth, microbatches, limit_us)
        self.fewest = np.full(depth + 1, layers + 1) if held is None else held.fewest
        if held is not None:
            rooms, few = held.rooms[:, None], np.minimum(few, held.most[1:, None] - suffix)
        self.most = np.minimum(few, rooms).clip(-1)
        self.extras = extras(limits.problem, depth)
        self.need = self._needs(layers)
        self.open = [] if limits.movable is None else self._open(limits.movable)
        self.front = [] if priced is None else self._front(priced)

    def _needs(self, layers: int) -> list[int]:
        """For k = 1…P: the fewest layers that the last k stages must hold for the stages before to hold the rest."""
        after = np.minimum(np.maximum(np.arange(layers + 1) + self.most, 0), layers)
        reached = np.full((self.depth, layers + 1), layers)
        reached[-1] = np.arange(layers + 1)
        for k in range(self.depth - 1, 0, -1):
            np.take(reached[k], after[k], out=reached[k - 1])
        enough = reached >= layers
        least = np.where(enough.any(axis=1), enough.argmax(axis=1), layers + 1)
        needs: list[int] = [*np.maximum(self.fewest[1:-1], least[:-1]).tolist(), layers]
        return needs

    def _open(self, movable: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.bool_]]:
        """For k = 1…P: with how many layers in the last k stages the others can hold the rest, moving little enough."""
        layers = self.limits.problem.layers
        held, own = np.indices((layers + 1, layers + 1))
        after = np.minimum(held + own, layers)
        tables = [np.arange(layers + 1) == layers]
        for k in range(self.depth, 1, -1):
            if self.stop():
                return []
            fitting = movable & (own <= self.most[k - 1][:, None])
            tables.append((fitting & tables[-1][after]).any(axis=1))
        return tables[::-1]

    def _front(self, priced: Priced) -> list[IntArray]:
        """For k = 1…P: the least price of the stages in front of the last k, by the layers that these hold."""
        layers, widest = self.limits.problem.layers, priced.prices.shape[1] - 1
        held, own = np.indices((layers + 1, widest + 1))
        after, beyond = np.minimum(held + own, layers), held + own > layers
        tables = [np.where(np.arange(layers + 1) == layers, 0, _DEAR)]
        for k in range(self.depth, 1, -1):
            forbidden = beyond | (own > self.most[k - 1][:, None])
            tables.append(np.where(forbidden, _DEAR, priced.prices + tables[-1][after]).min(axis=1).clip(max=_DEAR))
        return tables[::-1]

    def filled(self, part: int) -> tuple[int, ...] | None:
        """From the last stage each as full as it can be (0), or as it must be (all parts), or between."""
        split, held = list[int](), 0
        for k in range(1, self.depth + 1):
            least, most = max(1, self.need[k - 1] - held), int(self.most[k - 1][held])
            if least > most:
                return None
            split.append(most - (most - least) * part // _PARTS)
            held += split[-1]
        return tuple(split[::-1])

    def splits(self, most: int) -> Splits:
        """From the last stage to the first, dropping what cannot be completed, or what others do no worse."""
        none = Splits(np.zeros((0, self.depth), dtype=np.int64), np.zeros(0, dtype=np.int64), False)
        nothing = np.zeros(1, dtype=np.int64)
        state, complete = _Partial(np.zeros((1, 0), dtype=np.int64), nothing, nothing, None, nothing), True
        for k in range(1, self.depth + 1):
            if self.stop():
                return none
            state = self._judged(state, k)
            if len(state.held) > most:
                complete = False
                state = state.chosen(_best_of_each(state.held, state.times_us, most))
            if not len(state.held):
                break
        return none if self.stop() else Splits(state.layers, state.times_us, complete, self.whatever_fullest)

    def _judged(self, state: _Partial, k: int) -> _Partial:
        """Stage k in front of each partial split, with every number of layers that it can hold."""
        rows, own = self._extensions(state.held, k)
        price = state.price[rows]
        if self.priced is not None:
            price = price + self.priced.prices[state.held[rows], own]
            cheap = price + self.front[k - 1][state.held[rows] + own] <= self.priced.most
            rows, own, price = rows[cheap], own[cheap], price[cheap]
        layers, held = np.column_stack([own, state.layers[rows]]), state.held[rows] + own
        if self.comparable and len(rows) * self.microbatches**2 <= _CELLS:
            behind = None if state.responses is None else state.responses[rows]
            if k == 1 or behind is not None:
                self.effort.spend(_LEVEL + len(rows) * self.microbatches**2 // _ENTRIES)
                return self._compared(_Partial(layers, held, held, self._responses(behind, own, k), price), k)
        if len(rows) <= _FEW and k < self.depth:
            return _Partial(layers, held, np.zeros_like(held), None, price)
        self.effort.spend(len(rows) * k * self.microbatches // _PASSES)
        alone = self.limits.suffixes.times_us(layers, self.microbatches, whole=k == self.depth, stop=self.stop)
        times = alone + self._outside_us(held, k)
        kept = times <= self.limit_us
        return _Partial(layers[kept], held[kept], times[kept], None, price[kept])

    def _extensions(self, held: IntArray, k: int) -> tuple[IntArray, IntArray]:
        least = np.maximum(1, self.need[k - 1] - held)
        count = np.maximum(self.most[k - 1][held] - least + 1, 0)
        rows = np.repeat(np.arange(len(held)), count)
        own = least[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        if self.limits.movable is not None:
            kept = self.limits.movable[held[rows], own] & self.open[k - 1][held[rows] + own]
            rows, own = rows[kept], own[kept]
        return rows, own

    def _responses(self, behind: Responses | None, own: IntArray, k: int) -> Responses:
        problem = self.limits.problem
        forward, backward = self.extras
        # a path is one through the stages behind, at most the limit, and passes of stage k, which it visits m times
        kind = narrowest(2 * (self.limit_us + (self.microbatches + 1) * problem.p2p_us))
        times = [
            (own * one + extra[k - 1]).astype(kind)
            for one, extra in ((problem.forward_us, forward), (problem.backward_us, backward))
        ]
        return respond(behind, k, times[0], times[1], self.microbatches, problem.p2p_us, self.stop)

    def _compared(self, state: _Partial, k: int) -> _Partial:
        """Without those that take too long, and those that another one can replace."""
        assert state.responses is not None
        times = state.responses[:, -1, 0] + self._outside_us(state.held, k)
        kept = np.flatnonzero(times <= self.limit_us)
        state = _Partial(state.layers, state.held, times, state.responses, state.price).chosen(kept)
        assert state.responses is not None
        if len(kept) < 2:
            return state
        rank = None if self.priced is None else np.unique(state.price, return_inverse=True)[1]
        return state.chosen(undominated(state.held, state.responses, self.stop, rank))

    def _outside_us(self, held: IntArray, k: int) -> IntArray:
        """The first microbatch's way to stage k and the last one's way back from it."""
        problem = self.limits.problem
        before = self.limits.one_us * (problem.layers - held) + 2 * (self.depth - k) * problem.p2p_us
        return before + (sum(problem.first_extra_us) if k < self.depth else 0)


def _best_of_each(held: IntArray, times: IntArray, most: int) -> npt.NDArray[np.intp]:
    """The quickest partial splits of each number of layers held, as many of each."""
    order = np.lexsort((times, held))
    starts = np.flatnonzero(np.diff(held[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return np.asarray(order[rank < max(1, most // len(starts))])
