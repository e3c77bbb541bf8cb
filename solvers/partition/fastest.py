"""The partition whose step is fastest: an exact search with valid bounds, and a local one (README)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits
from solvers.partition.answers import why_infeasible
from solvers.partition.balanced import even_split
from solvers.partition.dp import best_split
from solvers.partition.pipeline_bounds import PathBounds, path_bounds
from solvers.partition.stage_times import StageTimes, makespans_us
from solvers.partition.table import UNFIT, IntArray, costs_of
from solvers.timeline.pipeline.inputs import Hide
from solvers.timeline.pipeline.order import Order

CANDIDATES = 200_000
"""Partitions and beginnings of partitions that the exact search holds at once."""
PAIRS = 5_000
"""Pairs of moves that the local search tries where no single move helps."""
ROWS = 1 << 20
"""Entries of a grid (beginnings × counts) that are computed at once."""


@dataclass(frozen=True, kw_only=True)
class Fastest:
    """A partition by the time of its step.

    `bound_us` bounds the time of every partition (None: none is known); `exact`: the bound is met. `evaluated` counts
    partitions timed. Where nothing fits, `layers` is None and `reason` says why; where a search stopped early, too.
    """

    layers: tuple[int, ...] | None
    makespan_us: int | None
    bound_us: int | None
    exact: bool
    evaluated: int
    reason: str | None = None
    solve_time_s: float = 0.0


@dataclass(frozen=True, eq=False)
class _Task:
    """One question: the stages' tables, the step's shape, when to stop."""

    times: StageTimes
    microbatches: int
    p2p_us: npt.ArrayLike
    hide: Hide
    limits: Limits
    began: float
    order: Order = "1f1b"

    def steps_us(self, layers: IntArray) -> IntArray:
        return makespans_us(self.times, layers, self.microbatches, self.p2p_us, self.hide, self.order)

    def is_over(self) -> bool:
        return time.perf_counter() - self.began > self.limits.time_s

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.began


def exact_step(
    times: StageTimes,
    microbatches: int,
    *,
    p2p_us: npt.ArrayLike = 0,
    hide_in_stalls: Hide = "none",
    limits: Limits | None = None,
    candidates: int = CANDIDATES,
    order: Order = "1f1b",
) -> Fastest:
    """The partition with the least time of a step.

    The local search gives an incumbent; beginnings of partitions whose bound (B1, B2) does not beat it are dropped; all
    that remain are timed. Where more than `candidates` would remain, or the time ends, the answer is the best
    known partition with the best bound that holds.
    """
    task = _Task(times, microbatches, p2p_us, hide_in_stalls, limits or Limits(), time.perf_counter(), order)
    found, bounds = _searched(task)
    if found.makespan_us is None or found.exact:
        return found
    remaining, lower, complete = _remaining(task, bounds, found.makespan_us, candidates)
    if not complete:
        bound = min(found.makespan_us, int(lower.min(initial=found.makespan_us)))
        why = "the time limit" if task.is_over() else f"more than {candidates} beginnings of partitions"
        return replace(found, bound_us=bound, reason=f"{why} ended the exact search", solve_time_s=task.elapsed_s())
    return _timed(task, found, remaining, lower)


def search_step(
    times: StageTimes,
    microbatches: int,
    *,
    p2p_us: npt.ArrayLike = 0,
    hide_in_stalls: Hide = "none",
    limits: Limits | None = None,
    order: Order = "1f1b",
) -> Fastest:
    """A partition that no move of one layer makes faster, nor any tried pair of moves; with the bound (B1, B2).

    It starts from the even partition, the one with the least slowest stage, and the one that the bound prefers.
    """
    task = _Task(times, microbatches, p2p_us, hide_in_stalls, limits or Limits(), time.perf_counter(), order)
    return _searched(task)[0]


def _searched(task: _Task) -> tuple[Fastest, PathBounds]:
    """The local search's answer, and the tables of the bound."""
    _require_step(task)
    bounds, costs = (
        path_bounds(task.times, task.microbatches, task.p2p_us, task.hide, task.order),
        task.times.costs_us(),
    )
    first = best_split(costs)
    if first is None:
        nothing = Fastest(layers=None, makespan_us=None, bound_us=None, exact=False, evaluated=0)
        return replace(nothing, reason=why_infeasible(costs), solve_time_s=task.elapsed_s()), bounds
    starts = {first, *(best_split(table) or first for table in (bounds.lane, bounds.lane + bounds.trip))}
    even = even_split(task.times.layers, task.times.stages)
    if costs_of(costs, even).max() < UNFIT:
        starts.add(even)
    return _descent(task, costs, np.array(sorted(starts), dtype=np.int64), bounds.least_us), bounds


def _descent(task: _Task, costs: IntArray, starts: IntArray, bound: int) -> Fastest:
    """From the best start, the best move while one helps; it ends at the bound, where none helps, or with the time."""
    steps, evaluated, reason = task.steps_us(starts), len(starts), None
    best, step = starts[np.argmin(steps)], int(steps.min())
    source, helps = np.random.default_rng(task.limits.seed), True
    while helps and step > bound:
        if task.is_over():
            reason = "the time limit ended the local search"
            break
        helps = False
        for near in _neighbours(costs, best, source):
            steps = task.steps_us(near)
            evaluated += len(near)
            if len(near) and steps.min() < step:
                best, step, helps = near[np.argmin(steps)], int(steps.min()), True
                break
    return Fastest(
        layers=tuple(best.tolist()),
        makespan_us=step,
        bound_us=min(step, bound),
        exact=step <= bound,
        evaluated=evaluated,
        reason=reason,
        solve_time_s=task.elapsed_s(),
    )


def _require_step(task: _Task) -> None:
    """At least one microbatch, messages that match the stages, and no sum of a step's times that reaches UNFIT."""
    times, hops = task.times, np.asarray(task.p2p_us)
    if task.microbatches < 1:
        raise InvalidInput(f"microbatches is {task.microbatches}: a step has at least 1")
    if hops.shape not in ((), (times.stages - 1,)) or (hops.size and hops.dtype.kind not in "iu"):
        raise InvalidInput(
            f"p2p_us has shape {hops.shape} and type {hops.dtype}: give one whole time, or {times.stages - 1} of them"
        )
    tables = (times.forward_us, times.backward_us, times.recompute_us, times.forward_hidden_us)
    longest = sum(int(table.max()) for table in tables) + 2 * int(np.max(hops, initial=0))
    if longest * times.stages * task.microbatches >= UNFIT >> 2:
        raise InvalidInput(f"times of up to {longest} us for {task.microbatches} microbatches: give smaller ones")


def _neighbours(costs: IntArray, layers: IntArray, source: np.random.Generator) -> Iterator[IntArray]:
    """Partitions that fit, one move of a layer away; then those of two moves, some of them where they are many."""
    moves = np.eye(len(layers), dtype=np.int64)
    single = (moves[None, :, :] - moves[:, None, :])[~np.eye(len(layers), dtype=np.bool_)]
    yield _fitting(costs, layers + single)
    chosen = np.arange(len(single) ** 2)
    if len(chosen) > PAIRS:
        chosen = source.choice(len(chosen), size=PAIRS, replace=False)
    pairs = single[chosen // max(1, len(single))] + single[chosen % max(1, len(single))]
    yield _fitting(costs, np.unique(layers + pairs, axis=0))


def _fitting(costs: IntArray, layers: IntArray) -> IntArray:
    inside = layers[(layers >= 1).all(axis=1)]
    return inside[(costs[np.arange(layers.shape[1]), inside] < UNFIT).all(axis=1)]


def _remaining(task: _Task, bounds: PathBounds, upper: int, most: int) -> tuple[IntArray, IntArray, bool]:
    """Partitions whose bound is below `upper`, and their bounds; or, cut short, beginnings with theirs and False."""
    layers = task.times.layers
    begun, lower = np.zeros((1, 0), dtype=np.int64), np.array([bounds.least_us])
    spent, trip, lane, rest = (np.zeros(1, dtype=np.int64) for _ in range(4))
    for stage in range(task.times.stages):
        parts = []
        for block in _blocks(len(begun), layers):
            left = (layers - spent[block])[:, None] - np.arange(layers + 1)[None, :]
            trips = trip[block, None] + bounds.trip[stage]
            lanes = np.maximum(lane[block, None], trip[block, None] + bounds.lane[stage])
            rests = np.maximum(rest[block, None], bounds.rest[stage])
            at = np.maximum(left, 0)
            bound = np.maximum(lanes, trips + bounds.lanes_after[stage + 1][at])
            onward = np.maximum(rests, bounds.rests_after[stage + 1][at])
            bound = np.maximum(bound, trips + bounds.trips_after[stage + 1][at] + onward)
            rows, counts = np.nonzero((left >= 0) & (bound < upper))
            kept = trips[rows, counts], lanes[rows, counts], rests[rows, counts], bound[rows, counts]
            parts.append((rows + block.start, counts, *kept))
            if sum(len(part[0]) for part in parts) > most or task.is_over():
                return begun, lower, False
        rows, counts, trip, lane, rest, lower = (np.concatenate(column) for column in zip(*parts, strict=True))
        begun, spent = np.column_stack((begun[rows], counts)), spent[rows] + counts
        if not len(begun):
            break
    return begun, lower, True


def _blocks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, ROWS // (width + 1))
    yield from (slice(begin, begin + step) for begin in range(0, rows, step))


def _timed(task: _Task, found: Fastest, remaining: IntArray, lower: IntArray) -> Fastest:
    """Times the remaining partitions, the most promising first, until no bound is below the best."""
    assert found.makespan_us is not None
    best, step, evaluated, reason = found.layers, found.makespan_us, found.evaluated, None
    order = np.argsort(lower, kind="stable")
    bound = step
    for begin in range(0, len(order), 4096):
        block = order[begin : begin + 4096]
        block = block[lower[block] < step]
        if not len(block):
            break
        if task.is_over():
            bound, reason = int(lower[block[0]]), "the time limit ended the exact search"
            break
        steps = task.steps_us(remaining[block])
        evaluated += len(block)
        if steps.min() < step:
            best, step = tuple(remaining[block[np.argmin(steps)]].tolist()), int(steps.min())
    bound = min(bound, step) if reason else step
    return Fastest(
        layers=best,
        makespan_us=step,
        bound_us=bound,
        exact=bound == step,
        evaluated=evaluated,
        reason=reason,
        solve_time_s=task.elapsed_s(),
    )
