"""Which depths use the nodes best: an unbounded knapsack, with the periodicity of large ones (README, proof 3)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from solvers.native import extension
from solvers.replan.estimate.rounds import IntArray

NATIVE = extension("solvers.replan.exact._filling")
"""Does what `prices_in_python` and `fill_in_python` do, number for number."""
_CELLS = 2**24
"""Entries of tables held at once."""
_TABLE = 2**21
"""Entries of the table of `fill_few` at most."""


def fill(worth: Mapping[int, int], nodes: int, most: int | None = None, least: int = 0) -> dict[int, int]:
    """How many pipelines of each depth, within the nodes given, count the most microbatches: {depth: pipelines}.

    `worth` is the number of microbatches that one pipeline of a depth can take (0: leave that depth out). With at most
    `most` pipelines, where that matters, the best of two depths: `at_most` says how much more there may be. Where fewer
    than `least` microbatches are of no use, only depths that are `useful` for as many are looked at.
    """
    some = useful(worth, nodes, most, least)
    if not some:
        return {}
    counts = _fill_periodic(some, nodes)
    return counts if most is None or sum(counts.values()) <= most else _fill_counted(some, nodes, most)


def at_most(worth: Mapping[int, int], nodes: int, most: int) -> int:
    """No pipelines count more: exact, or where `most` matters the optimum of fractions of pipelines."""
    some = useful(worth, nodes)
    if not some:
        return 0
    counts = _fill_periodic(some, nodes)
    if sum(counts.values()) <= most:
        return counted(some, counts)
    return min(counted(some, counts), _prices(some, nodes, most).bound)


def fill_few(worth: Mapping[int, int], nodes: int, most: int, least: int) -> dict[int, int] | None:
    """At most `most` pipelines of any depths that count `least` microbatches, {} where there are proven to be none.

    Exact, unlike `fill` where `most` matters, at the cost of a table of nodes for each number of pipelines; None where
    that is too large.
    """
    some = useful(worth, nodes, most, least)
    if not some:
        return {}
    if most * (nodes + 1) > _TABLE:
        return None
    tables = np.zeros((most + 1, nodes + 1), dtype=np.int32)
    for number in range(most):
        for depth, value in some.items():
            after = tables[number + 1, depth:]
            np.maximum(after, tables[number, : nodes + 1 - depth] + value, out=after)
        if tables[number + 1, nodes] >= least:
            break
    else:
        return {}
    counts, left = dict[int, int](), nodes
    for here in range(number + 1, 0, -1):
        total = int(tables[here, left])
        depths = [d for d, value in some.items() if d <= left and tables[here - 1, left - d] + value == total]
        if not depths:
            break  # fewer pipelines count as much
        counts[depths[0]] = counts.get(depths[0], 0) + 1
        left -= depths[0]
    return counts


def useful(worth: Mapping[int, int], nodes: int, most: int | None = None, least: int = 0) -> dict[int, int]:
    """The depths of which a pipeline may be among those that count `least` microbatches; none: nothing counts them.

    Beside what nodes and pipelines could count at their best prices, each pipeline loses something; all of them
    together may lose what is beyond `least`.
    """
    some = {depth: value for depth, value in worth.items() if value > 0 and depth <= nodes}
    if not some or not least:
        return some
    prices = _prices(some, nodes, nodes if most is None else most)
    node, unit, spare = prices.node, prices.unit, prices.spare(least) - prices.pipeline
    return {depth: value for depth, value in some.items() if node * depth - unit * value <= spare}


def least_useful(depth: int, worth: Mapping[int, int], nodes: int, most: int, least: int) -> int:
    """With fewer microbatches, a pipeline of one more depth is not `useful` beside these."""
    if not worth:
        return 1
    prices = _prices(worth, nodes, most)
    loss = max(prices.spare(least), -1)  # where these count too little, whoever gains helps
    return max(1, -((loss - prices.node * depth - prices.pipeline) // prices.unit))


@dataclass(frozen=True)
class _Prices:
    """The most that a node and a pipeline are worth, in microbatches times `unit`: the dual of parts of pipelines.

    A pipeline loses what its nodes and itself could count beyond its own microbatches.
    """

    node: int
    pipeline: int
    unit: int
    total: int

    @property
    def bound(self) -> int:
        """No pipelines count more microbatches."""
        return self.total // self.unit

    def spare(self, least: int) -> int:
        """What all pipelines together may lose to count `least`."""
        return self.total - least * self.unit


def _prices(worth: Mapping[int, int], nodes: int, most: int) -> _Prices:
    """The prices at which `most` pipelines on `nodes` nodes could count least: a side of the points' concave hull."""
    if NATIVE is not None:
        return _Prices(*NATIVE.prices(worth, nodes, most))
    return prices_in_python(worth, nodes, most)


def prices_in_python(worth: Mapping[int, int], nodes: int, most: int) -> _Prices:
    """The same without the native extension."""
    below, above = (0, 0), (0, 0)
    for point in _hull(worth):
        below, above = above, point
        if point[0] * most >= nodes:
            break
    else:
        return _Prices(0, above[1], 1, above[1] * most)
    unit, node = above[0] - below[0], above[1] - below[1]
    pipeline = below[1] * unit - node * below[0]
    return _Prices(node, pipeline, unit, node * nodes + pipeline * most)


def _hull(worth: Mapping[int, int]) -> list[tuple[int, int]]:
    """Depths and microbatches that no mixture of others with as many nodes exceeds, as long as they rise."""
    depths, values = [0], [0]
    for depth, value in sorted(worth.items()):
        if value <= values[-1]:
            continue
        while len(depths) > 1:
            rise, run = values[-1] - values[-2], depths[-1] - depths[-2]
            if rise * (depth - depths[-2]) > (value - values[-2]) * run:
                break
            depths.pop()
            values.pop()
        depths.append(depth)
        values.append(value)
    return list(zip(depths[1:], values[1:], strict=True))


def _fill_periodic(some: Mapping[int, int], nodes: int) -> dict[int, int]:
    """All but a few nodes go to the depth that uses them best."""
    best = max(some, key=lambda depth: (some[depth] / depth, -depth))
    others = best - 1
    surely = max(0, (nodes - others * max(some) - others) // best)
    counts = _fill_all(some, nodes - surely * best)
    counts[best] = counts.get(best, 0) + surely
    return {depth: count for depth, count in counts.items() if count}


def counted(worth: Mapping[int, int], counts: Mapping[int, int]) -> int:
    """The microbatches that these pipelines can take."""
    return sum(worth[depth] * count for depth, count in counts.items())


def _fill_counted(worth: Mapping[int, int], nodes: int, most: int) -> dict[int, int]:
    """The best of at most `most` pipelines of two depths, every number of the first tried."""
    depths = np.array(sorted(worth))
    values = np.array([worth[depth] for depth in depths])
    best, counts = -1, dict[int, int]()
    portion = max(1, _CELLS // depths.size**2)
    for start in range(0, most + 1, portion):
        number = np.arange(start, min(start + portion, most + 1))[:, None, None]
        left = nodes - number * depths[:, None]
        others = np.minimum(most - number, left // depths)
        total = np.where(left >= 0, number * values[:, None] + others * values, -1)
        one, first, second = (int(index) for index in np.unravel_index(total.argmax(), total.shape))
        if total[one, first, second] > best:
            best = int(total[one, first, second])
            counts = {int(depths[first]): start + one}
            other = int(depths[second])
            counts[other] = counts.get(other, 0) + int(others[one, first, second])
    return {depth: count for depth, count in counts.items() if count}


def _fill_all(worth: Mapping[int, int], nodes: int) -> dict[int, int]:
    """The knapsack itself, one depth after the other, each any number of times; none that smaller ones replace."""
    return fill_in_python(worth, nodes) if NATIVE is None else dict(NATIVE.filled(worth, nodes))


def fill_in_python(worth: Mapping[int, int], nodes: int) -> dict[int, int]:
    """The same without the native extension."""
    tables, order = [np.zeros(nodes + 1, dtype=np.int64)], list[int]()
    for depth in sorted(worth):
        if depth <= nodes and worth[depth] > tables[-1][depth]:
            tables.append(_with_depth(tables[-1], depth, worth[depth]))
            order.append(depth)
    counts: dict[int, int] = {}
    left = nodes
    for number in range(len(order), 0, -1):
        depth, table, before = order[number - 1], tables[number], tables[number - 1]
        while table[left] != before[left]:
            counts[depth] = counts.get(depth, 0) + 1
            left -= depth
    return counts


def _with_depth(table: IntArray, depth: int, value: int) -> IntArray:
    """table[w] ← max over j of table[w − j·depth] + j·value: a running maximum along each residue."""
    rows = -(-len(table) // depth)
    padded = np.full(rows * depth, -1, dtype=np.int64)
    padded[: len(table)] = table
    gains = value * np.arange(rows, dtype=np.int64)[:, None]
    best = np.maximum.accumulate(padded.reshape(rows, depth) - gains, axis=0) + gains
    return np.asarray(best.reshape(-1)[: len(table)])
