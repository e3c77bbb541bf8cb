"""ProTrain's search: every configuration of its four numbers, pruned by memory, by analytic time (paper §3.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from solvers.ir.fields import LARGEST
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.layout.analytic import Analytic
from solvers.layout.answers import fastest, feasible, without_plan
from solvers.layout.evaluate import Instance, instance
from solvers.layout.interleaved import interleaved_plan
from solvers.layout.layouts import Array, all_layouts, array, counts, left_out, sums, swap_places

AT_ONCE = 1 << 20
"""The most (counts of persistent chunks × layouts, or × chunks) evaluated together, which bounds memory."""
SAMPLE = 16
"""One of this many configurations is timed first, to tell which of the others need not be."""


@dataclass(frozen=True)
class Configuration:
    """ProTrain's four numbers, with the analytic time of what they stand for."""

    persist: int
    buffers: int
    swap: int
    checkpoint: int
    analytic_us: int

    def plan(self, problem: LayoutProblem) -> LayoutPlan:
        """The decision that they stand for."""
        return interleaved_plan(problem, self.persist, self.buffers, self.swap, self.checkpoint)


@dataclass(frozen=True)
class Search:
    """Exhaustive over n_persist, n_buffer, n_swap and n_checkpoint on the analytic time; the best few on the lanes.

    These are the best `keep`, and the best of each of the `keep` most promising counts of persistent chunks. FEASIBLE
    with a bound that holds for every decision. Beyond some 400 chunks and as many blocks (`MOST`) not all counts are
    tried, but evenly spread ones, and `reason` says so. The time limit is looked at between plans on the lanes; what
    comes before takes 10 s with 10,000 blocks and 100,000 chunks, and milliseconds with 100.
    """

    NAME: ClassVar[str] = "search"
    keep: int = 6

    def solve(self, problem: LayoutProblem, limits: Limits, watch: Watch | None = None) -> Solution[LayoutPlan]:
        """The best configuration on the lanes among those of least analytic time."""
        call = Call(self.NAME, limits)
        given = instance(problem)
        space = Space(given)
        found = space.best(max(1, self.keep))
        if not found:
            least = f"the least takes {space.least_bytes} bytes of the device: try exact-layout"
            lacking = f"no interleaved layout that was searched fits; {least}"
            return without_plan(call, given, lacking)
        plan, end_us = fastest(given, (one.plan(problem) for one in found), call, watch)
        return feasible(call, given, plan, end_us, left_out(problem))


class Space:
    """All configurations of a problem, with their exact memory; `persist` are the counts with which some may fit.

    More buffers never take longer in the analytic model, so of them only as many are looked at as fit; nor does less
    recomputation, so a layout is looked at only if no fewer checkpointed blocks leave room for as many buffers.
    `least_bytes` is the least device memory of any configuration that the host has room for.
    """

    def __init__(self, given: Instance) -> None:
        problem = given.problem
        self.given, self.problem = given, problem
        self.layouts = all_layouts(problem)
        every, _, _ = counts(problem)
        away = sums(array([chunk.host_bytes for chunk in problem.chunks]))
        host = (away[-1] - away)[every]
        states = sums(array([chunk.persistent_bytes + problem.chunk_bytes for chunk in problem.chunks]))
        static, buffers = problem.fixed_bytes + states[every], least_buffers_of_first(given)[every]
        row, least = self._least(static + buffers * problem.chunk_bytes, problem.host_bytes - host)
        fits = (row >= 0) & (least <= problem.device_bytes)
        self.persist, self.static_bytes, self.host_bytes = every[fits], static[fits], host[fits]
        self.least_buffers = buffers[fits]
        self.least_bytes = int(least[row >= 0].min())
        self._useful = self._useful_cells()

    def _least(self, static: Array, host: Array) -> tuple[Array, Array]:
        """The last row of layouts that the host has room for (none: −1), and the least memory of those until there."""
        layouts = self.layouts
        peaks = np.where(layouts.valid, layouts.peak_bytes, LARGEST).min(axis=1)
        row = np.searchsorted(layouts.swapped_bytes, host, "right") - 1
        return row, static + np.minimum.accumulate(peaks)[row]

    def _useful_cells(self) -> Array:
        """The layouts, by row, whose peak is lower than that of each with as many swaps and fewer checkpoints.

        Without those whose last swap changes nothing: its bytes come back before they could have left, and no more
        blocks are checkpointed than stand before it, so that one swap fewer takes no longer in the same memory.
        """
        layouts = self.layouts
        last = np.concatenate(([0], swap_places(self.problem)))[layouts.swap]
        late = (np.diff(layouts.swap, prepend=0) == 1) & (last + self.problem.interval + 1 >= len(self.problem.blocks))
        changes = ~late[:, None] | (layouts.again_end > last[:, None])
        peaks = np.where(layouts.valid & changes, layouts.peak_bytes, LARGEST)
        before = np.minimum.accumulate(np.hstack([np.full((len(peaks), 1), LARGEST), peaks[:, :-1]]), axis=1)
        return np.flatnonzero(peaks < before)

    def best(self, count: int) -> list[Configuration]:
        """Of those that fit, the `count` of least analytic time, and as many each the best of its persistent chunks.

        Of equal ones those with more chunks on the device. The second ones are there since the analytic model does not
        see how far loads run ahead, which more persistent chunks and fewer buffers change most.
        """
        at_once = max(1, AT_ONCE // max(len(self._useful), len(self.problem.chunks)))
        parts = [self._timed(slice(row, row + at_once), count) for row in range(0, len(self.persist), at_once)]
        if len(parts) > 1:
            parts = [part[:, np.sort(_chosen(part, count))] for part in parts]
        found = np.hstack([np.zeros((4, 0), dtype=np.int64), *parts])
        persist, buffers, layout, times = found[:, _chosen(found, count)]
        rows, columns = np.divmod(layout, len(self.layouts.checkpoint))
        numbers = (self.persist[persist], buffers, self.layouts.swap[rows], self.layouts.checkpoint[columns], times)
        return [Configuration(*map(int, each)) for each in zip(*numbers, strict=True)]

    def _timed(self, part: slice, count: int) -> Array:
        """Places of these counts of persistent chunks, the most buffers that fit, cells of layouts; analytic times.

        Left out is what takes longer than the best known ones of `count` counts of persistent chunks, whatever its
        buffers: it is neither among the best nor the best of one of the best of these counts.
        """
        analytic, cells = Analytic(self.given, self.layouts, self.persist[part]), self._useful
        fits = self._fits(part)
        persist, place = np.nonzero(fits[:, ::SAMPLE])
        some = cells[place * SAMPLE]
        known = np.full(max(count, len(fits)), LARGEST)
        np.minimum.at(known, persist, analytic.times_us(persist, self._most_buffers(part, persist, some), some))
        fits &= analytic.least_us(cells) <= np.partition(known, count - 1)[count - 1]
        persist, place = np.nonzero(fits)
        buffers = self._most_buffers(part, persist, cells[place])
        first = np.diff(cells // self.layouts.valid.shape[1], prepend=-1)[place] > 0
        better = first | (buffers > self._most_buffers(part, persist, cells[place - 1]))
        persist, cell, buffers = persist[better], cells[place[better]], buffers[better]
        return np.stack([persist + part.start, buffers, cell, analytic.times_us(persist, buffers, cell)])

    def _fits(self, part: slice) -> npt.NDArray[np.bool_]:
        """For each of these counts of persistent chunks, whether device and host hold each useful layout."""
        problem, layouts = self.problem, self.layouts
        buffers = self.least_buffers[part] * problem.chunk_bytes
        device = problem.device_bytes - self.static_bytes[part] - buffers
        host = problem.host_bytes - self.host_bytes[part]
        swapped = layouts.swapped_bytes[self._useful // layouts.valid.shape[1]]
        peaks = layouts.peak_bytes.ravel()[self._useful]
        fits: npt.NDArray[np.bool_] = (peaks <= device[:, None]) & (swapped <= host[:, None])
        return fits

    def _most_buffers(self, part: slice, persist: Array, cells: Array) -> Array:
        """The most buffers that fit and can be used, for places in this part of `persist`, and cells of layouts."""
        problem, peaks = self.problem, self.layouts.peak_bytes.ravel()
        room = (problem.device_bytes - self.static_bytes[part])[persist] - peaks[cells]
        return array(np.minimum(room // problem.chunk_bytes, (len(problem.chunks) - self.persist[part])[persist]))


def _chosen(found: Array, count: int) -> Array:
    """Of timed configurations, ordered by `persist`, the `count` best; then those of the `count` best `persist`."""
    persist, buffers, _, times = found
    if not len(times):
        return array([])
    least = np.partition(times, min(count, len(times)) - 1)[min(count, len(times)) - 1]
    near = np.flatnonzero(times <= least)
    first = near[np.lexsort((-buffers[near], -persist[near], times[near]))[:count]]
    starts = np.flatnonzero(np.diff(persist, prepend=-1))
    ends = [*starts[1:].tolist(), len(times)]
    rows = np.lexsort((-starts, np.minimum.reduceat(times, starts)))[:count].tolist()
    others = [int(starts[row] + np.argmin(times[starts[row] : ends[row]])) for row in rows]
    return array(list(dict.fromkeys([*first.tolist(), *others])))


def least_buffers_of_first(given: Instance) -> Array:
    """The least buffers if the first n chunks persist, for n = 0…C: each chunk comes upon those after it."""
    chunks, blocks = given.problem.chunks, len(given.problem.blocks)
    bound = np.zeros(blocks, dtype=np.int64)
    needed = np.zeros(len(chunks) + 1, dtype=np.int64)
    for number in reversed(range(len(chunks))):
        if chunks[number].trainable:
            span = bound[given.first[number] : given.last[number] + 1]
            span += 1
            most = span.max()
        else:
            users = given.asked[number][: len(given.asked[number]) // 2]
            bound[users] += 1
            most = bound[users].max()
        needed[number] = max(needed[number + 1], most)
    return needed
