"""The paper's time model, for many configurations at once: each block takes as long as its compute or its traffic.

    T = forward + max(backward + updates on the device, updates on the cpu)

[R]: the paper's appendix A is not in its published text; solvers/layout/README.md says what was reconstructed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.ir.layout import LayoutProblem
from solvers.layout.evaluate import Instance
from solvers.layout.layouts import Array, Layouts, array, sums, swap_places

AT_ONCE = 4096
"""Configurations timed together: arrays beyond some 100 KiB cost more to allocate than to fill."""


@dataclass(frozen=True)
class _Chunks:
    """The chunks' times and uses as arrays."""

    first: Array
    last: Array
    load: Array
    gather: Array
    reduce: Array
    offload: Array
    allreduce: Array
    cpu_update: Array
    device_update: Array

    @staticmethod
    def of(given: Instance) -> "_Chunks":
        names = ("load", "gather", "reduce", "offload", "allreduce", "cpu_update", "device_update")
        times = {name: array([getattr(c, f"{name}_us") for c in given.problem.chunks]) for name in names}
        return _Chunks(array(given.first), array(given.last), **times)


@dataclass(frozen=True)
class Activations:
    """What swapping adds to the lanes: by block, the part of a swap-out and of a swap-in that runs along with it.

    A swapped block's bytes leave during the `interval` forward passes after its own and return during the backward
    passes of the same blocks, spread evenly. Where fewer blocks follow, the rest moves between forward and backward,
    while nothing else runs: `alone`, for each count of swapped blocks.
    """

    out: Array
    into: Array
    alone: Array

    @staticmethod
    def of(problem: LayoutProblem, swap: Array) -> "Activations":
        """Along with each block, if all places of the layout are swapped; alone, for these counts."""
        count, interval = len(problem.blocks), problem.interval
        out, into = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        alone = [0]
        for place in map(int, swap_places(problem)):
            block, along = problem.blocks[place], min(interval, count - 1 - place)
            parts = -(-block.swap_out_us // interval), -(-block.swap_in_us // interval)
            out[place + 1 : place + along + 1], into[place + 1 : place + along + 1] = parts
            rests = max(0, block.swap_out_us - along * parts[0]), max(0, block.swap_in_us - along * parts[1])
            alone.append(alone[-1] + sum(rests))
        return Activations(out, into, array(alone)[swap])


class Analytic:
    """The times of configurations (n_persist, n_buffer, n_swap, n_checkpoint), from sums over ranges of blocks.

    The first n_persist chunks persist; in backward, the first n_buffer of the others that it asks for are still there
    (formats.md 8.2 evicts what is asked for latest). `persist` lists the counts of persistent chunks, which
    are given by their place in it, as layouts are by their cell in `layouts`.
    """

    def __init__(self, given: Instance, layouts: Layouts, persist: Array) -> None:
        problem = given.problem
        self.layouts, self.persist, self.blocks = layouts, persist, len(problem.blocks)
        self._chunks = _Chunks.of(given)
        self._compute = array([block.backward_us for block in problem.blocks])
        self._again = array([block.forward_us if block.choice else 0 for block in problem.blocks])
        self._moves = Activations.of(problem, layouts.swap)
        self._places = swap_places(problem)
        stays = np.arange(len(problem.chunks)) < persist[:, None]
        self._on_device = np.where(stays, self._chunks.device_update, 0).sum(axis=1)
        self._on_cpu = np.where(stays, 0, self._chunks.cpu_update).sum(axis=1)
        self._overlap = problem.overlap_update
        self._forward = self._forward_times(array([block.forward_us for block in problem.blocks]))
        self._gradients = self._gradient_traffic()
        self._prepare_backward()

    def times_us(self, persist: Array, buffers: Array, layout: Array) -> Array:
        """The analytic time of each configuration: places in `persist`, buffers, and cells of the table of layouts.

        `buffers` are at most as many as there are chunks that do not persist.
        """
        times = np.empty(len(layout), dtype=np.int64)
        for start in range(0, len(layout), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            times[part] = self._times(persist[part], buffers[part], layout[part])
        return times

    def least_us(self, layout: Array) -> Array:
        """For each count of persistent chunks no more than the analytic time of these layouts with any buffers.

        In backward there is no traffic at all, or nothing is missing and nothing is computed again.
        """
        layouts = self.layouts
        first, others = sums(self._again), sums(self._again[self._places])
        again = first[layouts.again_end] - others[layouts.again_swapped]
        compute = self._compute.sum() + again.ravel()[layout]
        row, persist = layout // layouts.valid.shape[1], np.arange(len(self.persist))[:, None]
        return self._step_times(persist, row, np.maximum(compute, self._there[:, 0, -1:]))

    def _times(self, persist: Array, buffers: Array, layout: Array) -> Array:
        row = layout // self.layouts.valid.shape[1]
        return self._step_times(persist, row, self._backward_times(persist, buffers, layout, row))

    def _step_times(self, persist: Array, row: Array, backward: Array) -> Array:
        forward = self._forward[persist, row]
        on_device, on_cpu = self._on_device[persist], self._on_cpu[persist]
        if self._overlap:
            return array(forward + np.maximum(backward + on_device, on_cpu))
        return array(forward + backward + np.maximum(on_device, on_cpu))

    def _by_block(self, times: Array, block: Array) -> Array:
        """Σ of the chunks that do not persist, for each count of persistent ones and each block."""
        table = np.zeros((len(self.persist), self.blocks), dtype=np.int64)
        away = np.arange(self.persist[0], len(times))
        np.add.at(table, (np.searchsorted(self.persist, away, "right") - 1, block[away]), times[away])
        return np.flip(np.cumsum(np.flip(table, 0), axis=0), 0)

    def _forward_times(self, compute: Array) -> Array:
        """For each count of persistent chunks and each count of swapped blocks."""
        chunks = self._chunks
        traffic = np.maximum(self._by_block(chunks.load, chunks.first), self._by_block(chunks.gather, chunks.first))
        alone = np.maximum(compute, traffic)
        moving = np.maximum(alone, self._moves.out)
        end = self.layouts.moving_end
        return sums(alone)[:, -1:] + sums(moving - alone)[:, end] + self._moves.alone

    def _gradient_traffic(self) -> tuple[Array, Array]:
        """By count of persistent chunks and block: on the network, and out of the device."""
        chunks = self._chunks
        reduced = self._by_block(chunks.reduce, chunks.first)
        exchanged = self._by_block(chunks.allreduce, chunks.first)
        every = np.bincount(chunks.first, chunks.allreduce, self.blocks).astype(np.int64)
        return reduced + every - exchanged, self._by_block(chunks.offload, chunks.first)

    def _prepare_backward(self) -> None:
        """Sums over the first blocks, with nothing missing (`_there`) and what missing chunks add (`_more`).

        Each is a table by count of persistent chunks, case and block. Case 2·moving + again: swapped activations
        return at the same time; the block is computed again.
        """
        chunks = self._chunks
        none = np.zeros((len(self.persist), self.blocks), dtype=np.int64)
        there = self._block_times(none, none)
        missing = self._block_times(
            self._by_block(chunks.load, chunks.last), self._by_block(chunks.gather, chunks.last)
        )
        more = missing - there
        self._there, self._more = sums(there), sums(more)
        self._there_swapped = sums((there[:, 2] - there[:, 3])[:, self._places])
        self._more_swapped = sums((more[:, 2] - more[:, 3])[:, self._places])
        self._place_of = np.full(self.blocks, self.blocks, dtype=np.int64)
        self._place_of[self._places] = np.arange(len(self._places))
        self._places_before = np.searchsorted(self._places, np.arange(self.blocks + 1))
        self._cut, self._partial = self._partly_missing(there)

    def _block_times(self, loads: Array, gathers: Array) -> Array:
        """By count of persistent chunks, case and block."""
        network, away = self._gradients
        least = np.maximum(gathers + network, away)
        cases = [
            np.maximum(np.maximum(self._compute + again * self._again, loads + moving * self._moves.into), least)
            for moving in (0, 1)
            for again in (0, 1)
        ]
        return np.stack(cases, axis=1)

    def _partly_missing(self, there: Array) -> tuple[Array, Array]:
        """By persistent chunks and buffers: the block up to which all is missing, and what that block takes longer.

        The latter by case. In the order in which backward asks for chunks the first ones are there, the rest missing.
        """
        chunks, count = self._chunks, len(self._chunks.last)
        order = np.lexsort((np.arange(count), -chunks.last))
        asks = order >= self.persist[:, None]
        row, place = np.nonzero(asks)
        held = np.cumsum(asks, axis=1)[row, place] - 1
        block = chunks.last[order[place]]
        end = count - np.searchsorted(chunks.last[order][::-1], np.arange(self.blocks))
        left = [
            (missing := sums(np.where(asks, times[order], 0)))[row, end[block]] - missing[row, place]
            for times in (chunks.load, chunks.gather)
        ]
        cut = np.zeros((len(self.persist), count + 1), dtype=np.int64)
        partial = np.zeros((len(self.persist), count + 1, 4), dtype=np.int64)
        cut[row, held] = block
        network, away = (times[row, block] for times in self._gradients)
        least = np.maximum(left[1] + network, away)
        for case in range(4):
            compute = self._compute[block] + case % 2 * self._again[block]
            time = np.maximum(compute, left[0] + case // 2 * self._moves.into[block])
            partial[row, held, case] = np.maximum(time, least) - there[row, case, block]
        return cut, partial

    def _backward_times(self, persist: Array, buffers: Array, layout: Array, row: Array) -> Array:
        layouts = self.layouts
        again_end, moving_end = layouts.again_end.ravel()[layout], layouts.moving_end[row]
        again_swapped, swapped = layouts.again_swapped.ravel()[layout], layouts.swap[row]
        ranges = _Ranges(np.minimum(again_end, moving_end), np.maximum(again_end, moving_end), again_end < moving_end)
        cut = self._cut[persist, buffers]
        case = 2 * (cut < moving_end) + ((cut < again_end) & (self._place_of[cut] >= swapped))
        return array(
            ranges.total(self._there, persist, None)
            + self._there_swapped[persist, again_swapped]
            + ranges.total(self._more, persist, cut)
            + self._more_swapped[persist, np.minimum(again_swapped, self._places_before[cut])]
            + self._partial[persist, buffers, case]
        )


@dataclass(frozen=True)
class _Ranges:
    """Both cases hold for blocks below `both`, one of them below `one`, none beyond."""

    both: Array
    one: Array
    moving: npt.NDArray[np.bool_]

    def total(self, table: Array, persist: Array, until: Array | None) -> Array:
        """The sum over the blocks below `until` (None: all), each in its case."""
        width = table.shape[2]
        last = array(width - 1) if until is None else until
        both, one = np.minimum(self.both, last), np.minimum(self.one, last)
        flat, start = table.ravel(), persist * (4 * width)
        middle = start + (self.moving + 1) * width
        first = flat.take(start + 3 * width + both) + flat.take(middle + one) - flat.take(middle + both)
        return array(first + flat.take(start + last) - flat.take(start + one))
