"""The exactly best mix of policies, by what a mix may lose against its relaxation (README, M3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from solvers.recompute.layer.mix import MARGIN, FloatArray, Menu, peak_bounds, price
from solvers.recompute.layer.pareto import IntArray, TooManyStates, nondominated

Mix = tuple[tuple[int, int], ...]
"""(policy, layers) pairs."""
QUICK, THOROUGH = 1_500, 1_000_000
"""Partial mixes that a search may make: for a bound alone, and where the mix itself is asked for."""
MOST_LAST = 200
"""The most policies that are tried for a last layer without windows."""
EACH = 100
"""The least that a policy of the largest working set counts towards these limits: what starting its search costs."""


@dataclass(frozen=True)
class Blend:
    """The best mix found; `bound` bounds every mix that was allowed, and meets `time_us` where the search ended."""

    mix: Mix
    time_us: int
    bound: int


class OutOfWork(Exception):
    """A search made more partial mixes than it may, or was stopped."""


def best_pair(menu: Menu, bounds: FloatArray, single: int, stop: Callable[[], bool] = lambda: False) -> Blend:
    """The best mix of one or two policies, `single` being the best one alone; exact unless stopped."""
    mix: Mix = ((single, menu.layers),)
    best = menu.time_of(mix)
    first = np.arange(1, menu.layers)
    for peak in _promising(bounds):
        if bounds[peak] > best - 1 or stop():
            break
        among = menu.up_to(int(menu.working_bytes[peak]))
        room = menu.room_bytes - int(menu.working_bytes[peak])
        share = (
            np.multiply.outer(first, menu.share_bytes[peak])
            + np.multiply.outer(menu.layers - first, menu.share_bytes[among]).T
        )
        time_us = first * menu.time_us[peak] + np.multiply.outer(menu.time_us[among], menu.layers - first)
        if menu.late_us is not None:
            time_us += np.minimum(menu.late_us[among], menu.late_us[peak])[:, None]
        time_us[share > room] = best
        if time_us.size and time_us.min() < best:
            row, column = divmod(int(time_us.argmin()), len(first))
            best = int(time_us[row, column])
            mix = ((peak, int(first[column])), (int(among[row]), int(menu.layers - first[column])))
    return Blend(mix, best, best)


def best_mix(
    menu: Menu, bounds: FloatArray, start: Blend, work: int, stop: Callable[[], bool] = lambda: False
) -> Blend:
    """The best mix of any number of policies, from a known one.

    Mixes are sorted by the policy with the largest working set, most promising first. Where the search gives up, the
    bound is the least of the mixes that it has not seen.
    """
    best = start
    for peak in _promising(bounds):
        if bounds[peak] > best.time_us - 1:
            break
        try:
            if work <= 0 or stop():
                raise OutOfWork
            search = _Search(menu, peak, best.time_us, work, stop)
            found = search.run()
            work -= search.made
        except (OutOfWork, TooManyStates):
            return Blend(best.mix, best.time_us, min(best.time_us, max(0, int(np.ceil(bounds[peak])))))
        best = best if found is None else Blend(found, menu.time_of(found), 0)
    return Blend(best.mix, best.time_us, best.time_us)


def _promising(bounds: FloatArray) -> Iterator[int]:
    return map(int, np.argsort(bounds, kind="stable"))


def best_mix_with_last(
    menu: Menu, bounds: FloatArray, start: Blend, work: int, stop: Callable[[], bool] = lambda: False
) -> Blend:
    """The best mix where the last layer's time counts its backward windows, too.

    The last layer needs no policy that uses them: on the critical path the same costs no more. So each policy without
    them is tried for it, most promising first, with the best mix of the other layers.
    """
    assert menu.late_us is not None
    if menu.layers == 1:
        return Blend(start.mix, start.time_us, start.time_us)
    best, proven = start, start.time_us
    floors = np.maximum(_floors(menu), float(bounds.min()))
    for tried, last in enumerate(map(int, np.argsort(floors, kind="stable"))):
        if floors[last] > best.time_us - 1:
            break
        if tried == MOST_LAST or stop():
            proven = min(proven, max(0, int(np.ceil(floors[last]))))
            break
        own = int(menu.time_us[last])
        others = menu.without(last)
        known = Blend((), best.time_us - own, 0)
        found = best_mix(others, peak_bounds(others, known.time_us), known, work, stop)
        proven = min(proven, own + found.bound)
        if found.time_us < known.time_us:
            layers = dict(found.mix)
            count = layers.pop(last, 0) + 1  # listed last
            best = Blend((*layers.items(), (last, count)), own + found.time_us, 0)
    return Blend(best.mix, best.time_us, min(best.time_us, proven))


def _floors(menu: Menu) -> FloatArray:
    """For each policy a bound on all mixes whose last layer has it; inf where it uses backward windows."""
    assert menu.late_us is not None
    everyone = np.arange(len(menu.time_us))
    found = price(menu, everyone, menu.layers, menu.room_bytes)
    per_byte = 0.0 if found is None else found.per_byte
    priced = menu.time_us + per_byte * menu.share_bytes
    floors: FloatArray = priced + (menu.layers - 1) * priced.min() - per_byte * (menu.room_bytes - menu.working_bytes)
    floors -= MARGIN * (menu.layers * priced.max() + per_byte * abs(menu.room_bytes))
    floors[menu.late_us > 0] = np.inf
    return floors


class _Search:
    """The best mix with a given policy of the largest working set, if it is faster than `best`.

    One layer has that policy. At the price of the others' relaxation, the fast and the light policy cost nothing extra
    and any other one its reduced cost, so that few layers have another one: their multisets are enumerated, and the
    counts of fast and light follow from the memory.
    """

    def __init__(self, menu: Menu, peak: int, best: int, work: int, stop: Callable[[], bool]) -> None:
        self.menu, self.peak, self.best, self.work, self.stop = menu, peak, best, work, stop
        self.layers = menu.layers - 1
        self.room = menu.room_bytes - int(menu.working_bytes[peak] + menu.share_bytes[peak])
        self.made = EACH
        self.levels: list[tuple[int, IntArray, IntArray]] = []

    def run(self) -> Mix | None:
        """None where no such mix is faster. Raises `OutOfWork`, and `TooManyStates` where it is stopped."""
        among = self.menu.up_to(int(self.menu.working_bytes[self.peak]))
        found = price(self.menu, among, self.layers, self.room)
        if found is None:
            return None
        self.fast, self.light = found.fast, found.light
        priced = self.menu.time_us[among] + found.per_byte * self.menu.share_bytes[among]
        terms = self.menu.layers * float(priced.max()) + found.per_byte * abs(self.room) + self.best
        least = int(self.menu.time_us[self.peak]) + self.layers * float(priced.min()) - found.per_byte * self.room
        slack = self.best - 1 - least + MARGIN * terms
        if slack < 0:
            return None
        extra = priced - priced.min()
        odd = [(float(extra[k]), int(among[k])) for k in np.flatnonzero(extra <= slack)]
        figures, loss = np.zeros((3, 1), dtype=np.int64), np.zeros(1)
        for cost, policy in sorted(odd, reverse=True):
            if policy not in (self.fast, self.light):
                figures, loss = self._extend(figures, loss, policy, cost, slack)
        return self._filled(figures)

    def _extend(
        self, figures: IntArray, loss: FloatArray, policy: int, cost: float, slack: float
    ) -> tuple[IntArray, FloatArray]:
        """Every partial mix (layers, time, share) with 0, 1, 2, … layers of the policy, within the slack."""
        step = np.array([1, self.menu.time_us[policy], self.menu.share_bytes[policy]], dtype=np.int64)
        parts, parents, counts = [figures], [np.arange(len(loss))], [np.zeros(len(loss), dtype=np.int64)]
        able = parents[0]
        for count in range(1, self.layers + 1):
            able = able[(loss[able] + count * cost <= slack) & (figures[0, able] + count <= self.layers)]
            if not len(able):
                break
            parts.append(figures[:, able] + count * step[:, None])
            parents.append(able)
            counts.append(np.full(len(able), count))
            self.made += len(able)
            if self.made > self.work:
                raise OutOfWork
        joined, parent, count_of = np.concatenate(parts, axis=1), np.concatenate(parents), np.concatenate(counts)
        kept = nondominated(np.concatenate([joined, -joined[:1]]), self.stop)
        self.levels.append((policy, parent[kept], count_of[kept]))
        return joined[:, kept], loss[parent[kept]] + cost * count_of[kept]

    def _filled(self, figures: IntArray) -> Mix | None:
        """The remaining layers go to the fast policy, as few as memory asks for to the light one."""
        layers, time_us, share = figures
        rest = self.layers - layers
        (fast_us, fast_share), (light_us, light_share) = (
            (int(self.menu.time_us[policy]), int(self.menu.share_bytes[policy])) for policy in (self.fast, self.light)
        )
        over = share + rest * fast_share - self.room
        light = np.maximum(0, -(-over // max(1, fast_share - light_share)))
        total = int(self.menu.time_us[self.peak]) + time_us + rest * fast_us + light * (light_us - fast_us)
        total[(light > rest) | ((light > 0) & (fast_share == light_share))] = self.best
        column = int(total.argmin())
        return self._mix(column, int(rest[column]), int(light[column])) if total[column] < self.best else None

    def _mix(self, column: int, rest: int, light: int) -> Mix:
        """The policies of a partial mix, filled up."""
        layers = {self.peak: 1}
        for policy, parents, counts in reversed(self.levels):
            layers[policy] = layers.get(policy, 0) + int(counts[column])
            column = int(parents[column])
        for policy, count in ((self.light, light), (self.fast, rest - light)):
            layers[policy] = layers.get(policy, 0) + count
        return tuple((policy, count) for policy, count in layers.items() if count)
