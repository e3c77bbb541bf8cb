"""Whether a `recompute-layer` plan can be faster than is claimed: all mixes of all policies, without listing them.

Let Ω be a mix's largest working set: its layers' policies have w ≤ Ω, and Σ g ≤ R = room − Ω. For a price a/b of a byte
each such mix has b·Σ c ≥ Σ (b·c + a·g) − a·R ≥ L·min (b·c + a·g) − a·R. Where that leaves room for less than the claim,
the mixes within that room are added up, layer by layer in doubled numbers, worse ones left out. All in whole numbers.
"""

import math

import numpy as np

from solvers.check.judge import Range
from solvers.check.recompute_layer.front import Ints, Policies, policies_of
from solvers.ir.recompute import RecomputeLayerProblem

MOST_MIXES = 3_000
"""Partial mixes of one number of layers beyond which a claim is left unproven."""
MOST_PRICES = 2_000
"""Prices tried in all."""
LARGEST = 2**62
"""No product may be larger."""
UNKNOWN: Range = (0.0, math.inf)
Mixes = tuple[Ints, Ints]
"""(µs, bytes) of partial mixes."""


def best_us(problem: RecomputeLayerProblem, claimed: float | None) -> Range:
    """At least `claimed` where that can be proved, at most a faster mix where there is one; infinite: none fits."""
    found = policies_of(problem)
    if found is None:
        return UNKNOWN
    room = problem.budget_bytes - problem.static_bytes
    room -= problem.inflight_microbatches * problem.layers * problem.layer_input_bytes
    alone = problem.layers * found.share_bytes + found.working_bytes <= room
    if not alone.any():
        return math.inf, math.inf
    known = int((problem.layers * found.time_us + found.late_us)[alone].min())  # one policy for all layers
    if claimed is None or claimed <= 0:
        return 0.0, known
    faster = _Mixes(found, problem.layers, room, math.ceil(claimed) - 1).least_us()
    if faster is None:
        return 0.0, known
    return (math.ceil(claimed), known) if faster == math.inf else (0.0, min(known, faster))


class _Mixes:
    """Mixes of at most `most_us`; policies stand in the order of their working sets."""

    def __init__(self, found: Policies, layers: int, room: int, most_us: int) -> None:
        order = np.argsort(found.working_bytes, kind="stable")
        self.time, self.share = found.time_us[order], found.share_bytes[order]
        self.last = self.time + found.late_us[order]  # what a policy costs in the last layer
        self.working = found.working_bytes[order]
        self.ends = np.searchsorted(self.working, np.unique(self.working), side="right")
        self.rooms = room - np.unique(self.working)
        self.layers, self.most_us = layers, most_us

    def least_us(self) -> float | None:
        """The time of some mix within `most_us`; infinite where there is none, None where that stays open."""
        opened = [number for number in range(len(self.ends)) if self._fits(number)]
        for _ in range(MOST_PRICES):
            if not opened:
                return math.inf
            number = opened[-1]
            price = self._price(number)
            slack = self._slacks(price)
            if slack is None:
                return None
            if slack[number] >= 0:
                found = self._added_up(number, price)
                if found != math.inf:
                    return found
                slack[number] = -1
            opened = [other for other in opened if slack[other] >= 0]
        return None

    def _fits(self, number: int) -> bool:
        return self.layers * int(self.share[: self.ends[number]].min()) <= int(self.rooms[number])

    def _price(self, number: int) -> tuple[int, int]:
        """(a, b), the price of a byte at which too heavy and light enough policies cost the same (the dual's best)."""
        time, share = self.time[: self.ends[number]], self.share[: self.ends[number]]
        limit = int(self.rooms[number])
        fast, light = int(np.lexsort([share, time])[0]), int(np.lexsort([time, share])[0])
        while self.layers * int(share[fast]) > limit:
            a, b = int(time[light]) - int(time[fast]), int(share[fast]) - int(share[light])
            if a <= 0 or b <= 0:
                break
            divisor = math.gcd(a, b)
            a, b = a // divisor, b // divisor
            priced = [b * int(c) + a * int(g) for c, g in zip(time, share, strict=True)]
            best = min(range(len(priced)), key=priced.__getitem__)
            if priced[best] >= min(priced[fast], priced[light]):
                return a, b
            if self.layers * int(share[best]) > limit:
                fast = best
            else:
                light = best
        return 0, 1

    def _slacks(self, price: tuple[int, int]) -> Ints | None:
        """By Ω, b·most + a·R less what the layers cost at least at that price; negative: no mix; None: too large."""
        a, b = price
        largest = b * int(self.last.max()) + a * int(self.share.max())
        if self.layers * largest + b * self.most_us + a * int(np.abs(self.rooms).max()) > LARGEST:
            return None
        inner = np.minimum.accumulate(b * self.time + a * self.share)[self.ends - 1]
        outer = np.minimum.accumulate(b * self.last + a * self.share)[self.ends - 1]
        slacks: Ints = b * self.most_us + a * self.rooms - (self.layers - 1) * inner - outer
        return slacks

    def _added_up(self, number: int, price: tuple[int, int]) -> float | None:
        """Mixes whose policies cost little more at that price than the least: the time of one that fits."""
        (a, b), end = price, self.ends[number]
        time, share, last = self.time[:end], self.share[:end], self.last[:end]
        least, slacks = int((b * time + a * share).min()), self._slacks(price)
        assert slacks is not None
        slack = int(slacks[number])

        def within(mixes: Mixes, count: int) -> Mixes:
            extra = b * mixes[0] + a * mixes[1] - count * least
            return _best(mixes[0][extra <= slack], mixes[1][extra <= slack])

        total: Mixes | None = (np.zeros(1, np.int64), np.zeros(1, np.int64))
        power: Mixes | None = within((time, share), 1)
        done, size, rest = 0, 1, self.layers - 1
        while rest and total is not None and power is not None:
            if rest & 1:
                done += size
                total = _sums(total, power)
                total = None if total is None else within(total, done)
            rest >>= 1
            size *= 2
            power = _sums(power, power) if rest else power
            power = None if power is None else within(power, size)
        if total is None or power is None:
            return None
        ended = _sums(total, (last, share))
        if ended is None:
            return None
        fitting = ended[0][(ended[1] <= self.rooms[number]) & (ended[0] <= self.most_us)]
        return int(fitting.min()) if len(fitting) else math.inf


def _sums(one: Mixes, other: Mixes) -> Mixes | None:
    if max(len(one[0]), len(other[0])) > MOST_MIXES:
        return None
    return (one[0][:, None] + other[0]).ravel(), (one[1][:, None] + other[1]).ravel()


def _best(time: Ints, share: Ints) -> Mixes:
    """Those that no other beats in both."""
    order = np.lexsort([share, time])
    time, share = time[order], share[order]
    before = np.concatenate([[np.iinfo(np.int64).max], np.minimum.accumulate(share)[:-1]]) if len(share) else share
    return time[share < before], share[share < before]
