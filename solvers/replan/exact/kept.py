"""The pipelines that can go on with what the nodes alive hold: nothing moves, whatever a transfer costs."""

from collections import Counter
from collections.abc import Iterator

from solvers.ir.replan import CurrentState, ReplanProblem
from solvers.replan.estimate.objective import Split
from solvers.replan.estimate.sync import sync_us
from solvers.replan.exact.bounds import IntArray
from solvers.replan.exact.timetable import Timetable
from solvers.replan.transfer.owners import held_layers, intervals

Pipelines = Counter[tuple[int, ...]]
"""How many pipelines of each split."""


def kept_pipelines(problem: ReplanProblem, timetable: Timetable) -> tuple[Split, ...]:
    """Pipelines with running splits that have a node for every stage, microbatches shared to end soonest.

    All that there can be; those whose fullest stage is no fuller than some number of layers, which synchronize sooner;
    or one alone, which does not synchronize: whatever has the least T_step. Nodes of alike stages stand in for each
    other. Empty where memory has no room for any.
    """
    if problem.current is None:
        return ()
    rows = dict[tuple[int, ...], IntArray]()
    best: tuple[Split, ...] = ()
    best_us: int | None = None
    for pipelines in _choices(problem, problem.current):
        for layers in pipelines.keys() - rows.keys():
            rows[layers] = timetable.rows_us([layers], timetable.most_fitting(layers))[0]
        if splits := _shared(problem.microbatches, rows, pipelines):
            time_us = max(int(rows[layers][count]) for layers, count in splits)
            time_us += sync_us(problem, [layers for layers, _ in splits])
            if best_us is None or time_us < best_us:
                best, best_us = splits, time_us
    return best


def _choices(problem: ReplanProblem, current: CurrentState) -> Iterator[Pipelines]:
    """The sets of pipelines worth examining, those with more pipelines first."""
    holders, failed = Counter(held_layers(problem).values()), set(current.failed)
    within = [pipeline for pipeline in current.pipelines if len(pipeline.layers) <= problem.max_depth]
    running = Pipelines(pipeline.layers for pipeline in within)
    whole = Pipelines(pipeline.layers for pipeline in within if failed.isdisjoint(pipeline.nodes))
    for fullest in sorted({max(layers) for layers in running}, reverse=True):
        standing = _standing(_no_fuller(running, fullest), holders)
        yield standing
        if (untouched := _no_fuller(whole, fullest)) != standing:
            yield untouched  # nodes that stand in for others may leave the pipelines they were in worth more
    for layers in running:
        if all(holders[stage] for stage in intervals(layers)):
            yield Pipelines([layers])


def _no_fuller(pipelines: Pipelines, fullest: int) -> Pipelines:
    return Pipelines({layers: count for layers, count in pipelines.items() if max(layers) <= fullest})


def _standing(running: Pipelines, holders: Counter[tuple[int, int]]) -> Pipelines:
    """As many pipelines with the running splits as have a node for every stage, the most frequent split first."""
    left, chosen = holders.copy(), Pipelines()
    for layers, _ in running.most_common():
        chosen[layers] = min(left[stage] for stage in intervals(layers))
        left.subtract(dict.fromkeys(intervals(layers), chosen[layers]))
    return +chosen


def _shared(microbatches: int, rows: dict[tuple[int, ...], IntArray], pipelines: Pipelines) -> tuple[Split, ...]:
    """Microbatches for these pipelines, as many as the least limit on their time that is enough allows."""

    def within(limit_us: int) -> Pipelines:
        return Pipelines({layers: int(rows[layers].searchsorted(limit_us, side="right")) - 1 for layers in pipelines})

    low, high = 0, max((int(rows[layers][-1]) for layers in pipelines), default=0)
    if _total(within(high), pipelines) < microbatches:
        return ()
    while low < high:
        middle = (low + high) // 2
        if _total(within(middle), pipelines) >= microbatches:
            high = middle
        else:
            low = middle + 1
    most = within(high)
    return counted_exactly([(layers, most[layers]) for layers in pipelines.elements()], microbatches)


def _total(most: Pipelines, pipelines: Pipelines) -> int:
    return sum(most[layers] * count for layers, count in pipelines.items())


def counted_exactly(pipelines: list[Split], count: int) -> tuple[Split, ...]:
    """Exactly `count` microbatches: the last pipelines count less, or stand still."""
    shared = []
    for layers, most in pipelines:
        shared.append((layers, min(most, count)))
        count -= shared[-1][1]
    return tuple(split for split in shared if split[1])
