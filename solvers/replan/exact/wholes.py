"""Whole pipelines, nodes and senders that keep to a load, made of what prices leave (README, proofs 7 to 9)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array, vstack

from solvers.engines import glop
from solvers.engines.model import FloatArray
from solvers.replan.estimate.objective import Split
from solvers.replan.exact.bounds import IntArray
from solvers.replan.exact.cheapest import split_price
from solvers.replan.exact.counts import counted
from solvers.replan.exact.market import Market, Pattern
from solvers.replan.exact.program import Program
from solvers.replan.progress import Effort
from solvers.replan.transfer.owners import Interval, intervals
from solvers.replan.transfer.transportation import transport

_NODES = 10
"""Nodes of the search for whole nodes and owners."""
_NUMBERS = 16
"""So many numbers of pipelines are asked for."""
_WHOLE = 1e-6
"""A number this close to a whole one is one."""
_CENTS = 1000
"""Prices of nodes mapped anew are counted in this part, and what they receive as this part of a price at most."""
_PLACED = 4
"""So many times what a program takes its whole nodes take."""


@dataclass(frozen=True)
class Whole:
    """Whole pipelines; how many nodes of each kind take each of their `stages`, [kind, stage]; and who sends what.

    `sent`: copies of a layer that nodes of a kind send, `patterns`: of each size how many, and by how many nodes.
    """

    pipelines: tuple[Split, ...]
    stages: tuple[Interval, ...]
    flow: IntArray
    sent: Mapping[tuple[int, int], int]
    patterns: Sequence[tuple[int, Pattern, int]]


def whole_plan(
    market: Market,
    load: int,
    shapes: Sequence[Split],
    microbatches: int,
    effort: Effort | None = None,
) -> Whole | None:
    """Pipelines of these shapes that count the microbatches and keep to the load; None: not found.

    Whole numbers of pipelines that pay at all prices known are asked whether nodes and owners keep to the load with
    them; where not, the prices that say so are new ones. Where no numbers are left, there are none.
    """
    program, effort = Program(market, load, shapes), effort or Effort()
    effort.spend(program.about_us)
    found = program.most()
    if found is None or found.most < microbatches * (1 - _WHOLE):
        return None
    nodes, sent = program.prices(found)
    costs, most = [[len(layers) for layers, _ in shapes]], [int(market.counts.sum())]
    for _ in range(_NUMBERS):
        prices = market.stage_prices(nodes, sent, load, max(max(layers) for layers, _ in shapes))
        costs.append([split_price(prices, layers) for layers, _ in shapes])
        most.append(market.worth(nodes, sent, load))
        numbers = counted([count for _, count in shapes], microbatches, costs, most)[1]
        if numbers is None:
            return None
        share = program.share(range(len(shapes)), numbers, effort)
        if share is None or effort.over():
            return None
        if share[0] >= 1 - _WHOLE:
            if market.by_host is not market:
                some = [shape for shape, number in zip(shapes, numbers, strict=True) if number]
                program, numbers = Program(market.by_host, load, some), [number for number in numbers if number]
            return placed(program, range(len(numbers)), numbers, effort)
        _, nodes, sent = share
    return None


def placed(program: Program, kinds: Sequence[int], numbers: Sequence[int], effort: Effort) -> Whole | None:
    """Whole pipelines, nodes and owners for so many pipelines of each kind, as in `Program.share`; None: not found.

    On no more nodes than they need, which leaves few fractions: often rounding up what owners send is enough.
    """
    effort.spend(program.about_us)
    count, shapes, first = len(program.worth), len(program.shapes), program.first_node
    each = csr_array((np.ones(shapes), (kinds, range(shapes))), shape=(len(numbers), count))
    nodes = np.append(np.zeros(first), np.ones(count - first))
    worth = -nodes
    worth[:shapes] = [len(layers) + 1 for layers, _ in program.shapes]
    rows, upper = csr_array(vstack([program.matrix, each])), np.append(program.upper, numbers)
    found = glop.most(worth, rows, upper)
    if found is not None:
        amounts = np.rint(found.amounts)
        some = slice(program.first_owner, first)
        amounts[some] = np.ceil(found.amounts[some] - _WHOLE)
        if (rows @ amounts <= upper).all() and (each @ amounts >= numbers).all():
            return _whole(program, amounts.astype(np.int64))
    if len(program.market.links) > 1:  # where nodes stand decides more than fractions
        return None if found is None else _rounded(program, found, kinds, numbers)
    effort.spend(_PLACED * program.about_us)
    rules = [LinearConstraint(program.matrix, ub=program.upper), LinearConstraint(each, lb=numbers, ub=numbers)]
    integral = milp(
        nodes, integrality=np.ones(count, dtype=np.int64), constraints=rules, options={"node_limit": _NODES}
    )
    return None if integral.x is None else _whole(program, np.rint(integral.x).astype(np.int64))


def _whole(program: Program, amounts: IntArray) -> Whole:
    """What whole amounts of a program say."""
    pipelines, needed = _pipelines(program, amounts)
    flow = np.zeros((len(program.market.runs), len(program.stages)), dtype=np.int64)
    kind, stage = program.served.T
    flow[kind[kind >= 0], stage[kind >= 0]] = amounts[program.first_node :][kind >= 0]
    owned = amounts[program.first_owner : program.first_node]
    spare = owned[list(program.owners.brought)]
    for column in np.flatnonzero(kind < 0).tolist():
        flow[:, stage[column]] += (taken := _first(spare, int(amounts[program.first_node + column])))
        spare -= taken
    flow = _at_most(flow, needed)  # more nodes than are needed may stand at a stage
    sent = {(kind, layer): int(owned[column]) for column, (kind, layer) in program.owners.sent.items()}
    patterns = [(kind, some, int(owned[column])) for column, (kind, some) in program.owners.patterns.items()]
    return Whole(pipelines, tuple(program.stages), flow, sent, patterns)


def _rounded(program: Program, found: glop.Priced, kinds: Sequence[int], numbers: Sequence[int]) -> Whole | None:
    """So many whole pipelines, of amounts that are fractions; None: no nodes lack as little as the load.

    What is whole of the nodes on each stage stays, the others are mapped anew where what they lack is cheapest.
    """
    market = program.market
    pipelines, needed = _pipelines(program, _rounded_amounts(found.amounts[: len(kinds)] + _WHOLE, kinds, numbers))
    flow = np.zeros((len(market.runs), len(program.stages)), dtype=np.int64)
    kind, stage = program.served.T
    flow[kind[kind >= 0], stage[kind >= 0]] = (found.amounts[program.first_node :] + _WHOLE)[kind >= 0]
    flow = _at_most(flow, needed)
    start, stop = np.array(program.stages, dtype=np.int64).reshape(-1, 2).T
    sums, prices = market.lacked, market.before(program.prices(found, _CENTS)[1])
    load = sums[:, stop] - sums[:, start]
    cost = (prices[:, stop] - prices[:, start]) * _CENTS + load * _CENTS // max(1, int(load.max()))
    cost = np.where(load <= program.load, cost.astype(np.float64), np.inf)
    rest = transport(cost, market.counts - flow.sum(axis=1), needed - flow.sum(axis=0))
    return None if rest is None else Whole(pipelines, tuple(program.stages), flow + rest, {}, ())


def _rounded_amounts(amounts: FloatArray, kinds: Sequence[int], numbers: Sequence[int]) -> IntArray:
    """Whole amounts of each shape that add up to the numbers of each kind: the largest fractions are rounded up."""
    whole = amounts.astype(np.int64)
    for kind, number in enumerate(numbers):
        some = [shape for shape, its_kind in enumerate(kinds) if its_kind == kind]
        first = sorted(some, key=lambda shape: whole[shape] - amounts[shape])
        whole[first[: max(0, number - int(whole[some].sum()))]] += 1
        whole[first[0]] += number - int(whole[some].sum())  # where fractions keep to the load in part only
    return whole


def _pipelines(program: Program, amounts: IntArray) -> tuple[tuple[Split, ...], IntArray]:
    """Pipelines, so many of each shape, and how many nodes each stage of the program needs for them."""
    pipelines = tuple(
        shape for shape, amount in zip(program.shapes, amounts.tolist(), strict=False) for _ in range(amount)
    )
    counts = Counter(stage for layers, _ in pipelines for stage in intervals(layers))
    return pipelines, np.array([counts[stage] for stage in program.stages], dtype=np.int64)


def _at_most(flow: IntArray, needed: IntArray) -> IntArray:
    """Of the nodes on each stage no more than it needs."""
    return np.column_stack([_first(column, most) for column, most in zip(flow.T, needed.tolist(), strict=True)])


def _first(amounts: IntArray, wanted: int) -> IntArray:
    """As many of these as are wanted, the first ones first."""
    return np.diff(np.minimum(np.cumsum(amounts), wanted), prepend=0)
