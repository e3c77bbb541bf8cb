"""Which stages want the same nodes, and whose layers all of them want: prices of both (README, proof 7).

A plan whose busiest node receives and sends at most so much is a mixture of pipelines that together take no more nodes
of each kind than there are, and no more layers than their owners can send. At any prices of nodes and of sent layers
the pipelines cost no more than all there is, and no pipeline costs less than the cheapest split that can end in time:
a knapsack. The prices come from a linear program over the splits known so far, the splits from the prices.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from solvers.ir.replan import ReplanProblem
from solvers.replan.exact.bounds import IntArray, StageLimits
from solvers.replan.progress import Stop
from solvers.replan.transfer.owners import Interval, intervals
from solvers.replan.transfer.senders import sums, whole_layers

_UNIT = 2**24
"""Prices are counted in this part of a microbatch."""
_NEVER = 2**60
"""The price of what no node may take over."""
_ROUNDS = 5
"""How often new splits are priced."""
_NODES = 20
"""Nodes of the search for whole pipelines."""
_CELLS = 2**22
"""Kinds of nodes times stages at most: with more nothing is priced."""

Layers = tuple[int, ...]


@dataclass(frozen=True)
class Within:
    """The pipelines that a plan may have: no stage fuller than `limits` say, the slowest within `limit_us`.

    `possible`: the most microbatches of each depth that is of use.
    """

    limits: StageLimits
    limit_us: int
    possible: Mapping[int, int]


@dataclass(frozen=True)
class Mixture:
    """Splits, microbatches, and how many pipelines of them, in fractions: what the prices do not exclude."""

    splits: tuple[tuple[Layers, int], ...]
    amounts: tuple[float, ...]


class Market:
    """The nodes of one problem, by what they hold, and what whoever lacks a layer can be sent."""

    def __init__(self, problem: ReplanProblem, held: Mapping[Interval, int], sizes: Sequence[int]) -> None:
        self.problem, self.sizes = problem, np.array(sizes, dtype=np.int64)
        self.runs, self.counts = tuple(held), np.array(list(held.values()), dtype=np.int64)
        self.layers = problem.layers

    @property
    def small_enough(self) -> bool:
        """Whether tables of all stages for each kind can be held."""
        return len(self.runs) * (self.layers + 1) ** 2 <= _CELLS

    @cached_property
    def _shared(self) -> tuple[IntArray, IntArray]:
        """First and end of what a kind shares with a stage, [kind, layers behind, own]; end = first: nothing."""
        behind, own = np.indices((self.layers + 1, self.layers + 1))
        end, start = self.layers - behind, np.maximum(self.layers - behind - own, 0)
        runs = np.array(self.runs, dtype=np.int64).reshape(-1, 2)
        first = np.maximum(runs[:, :1, None], start)
        return first, np.maximum(np.minimum(runs[:, 1:, None], end), first)

    def _lacking(self, values: IntArray) -> IntArray:
        """The sum of the values of the layers that a kind lacks for a stage, [kind, layers behind, own]."""
        sums = np.concatenate([[0], np.cumsum(values)])
        behind, own = np.indices((self.layers + 1, self.layers + 1))
        whole = sums[self.layers - behind] - sums[np.maximum(self.layers - behind - own, 0)]
        first, end = self._shared
        return np.asarray(whole - (sums[end] - sums[first]))

    @cached_property
    def missing(self) -> IntArray:
        """Bytes that a node of each kind would receive, [kind, layers behind, own]."""
        return self._lacking(self.sizes)

    def stage_prices(self, nodes: IntArray, sent: IntArray, load: int) -> IntArray:
        """The cheapest node for a stage, with what it lacks, [layers behind, own]."""
        prices = np.where(self.missing <= load, nodes[:, None, None] + self._lacking(sent), _NEVER)
        behind, own = np.indices(prices.shape[1:])
        return np.where((own >= 1) & (behind + own <= self.layers), prices.min(axis=0), _NEVER)

    def loads(self, most: int) -> list[int]:
        """The loads up to this one that the busiest node may have, rising: what a stage lacks, or layers of one run."""
        found = set(np.unique(self.missing[self.missing <= most]).tolist()) | {0}
        for first, end in set(self.runs):
            found |= sums(self.sizes[first:end].tolist(), most)
        return sorted(load for load in found if 0 <= load <= most)

    def rooms(self, load: int) -> IntArray:
        """What a node of each kind can send, in bytes."""
        return np.array([whole_layers(self.sizes[first:end].tolist(), load) for first, end in self.runs])

    def worth(self, nodes: IntArray, sent: IntArray, load: int) -> int:
        """What all nodes and all that they can send are worth together, at least."""
        total = int((self.counts * nodes).sum())
        for (first, end), count, room in zip(self.runs, self.counts.tolist(), self.rooms(load).tolist(), strict=True):
            total += count * max((-(-room * int(sent[k]) // int(self.sizes[k])) for k in range(first, end) if sent[k]), default=0)
        return total


class Splits:
    """The cheapest splits of one shape of pipelines after the other."""

    def __init__(self, within: Within, prices: IntArray) -> None:
        self.within, self.layers = within, within.limits.problem.layers
        self.widest = min(within.limits.fullest, self.layers)
        held, own = np.indices((self.layers + 1, self.widest + 1))
        self._before, self._own = np.maximum(held - own, 0), own
        self._prices = np.where(held >= own, prices[self._before, own], _NEVER)

    @cached_property
    def least(self) -> list[int]:
        """At p: no split over p stages is cheaper, however long it takes."""
        held = np.full(self.layers + 1, _NEVER)
        held[0], least = 0, [_NEVER]
        for _ in range(max(self.within.possible, default=0)):
            held = np.minimum((held[self._before] + self._prices).min(axis=1), _NEVER)
            least.append(int(held[-1]))
        return least

    def cheapest(self, depth: int, microbatches: int) -> tuple[int, Layers]:
        """The least price of a split that the relaxation lets end in time, and the split; () where there is none."""
        limits = self.within.limits
        few = limits.paths.of(depth, microbatches).table(np.arange(self.layers + 1), self.within.limit_us)
        few = np.minimum(few, limits.rooms(depth, microbatches)[:, None])
        wide = min(self.widest, max(int(few.max()), 0)) + 1
        before = self._before[:, :wide]
        tables = np.empty((depth + 1, self.layers + 1), dtype=np.int64)
        tables[0], tables[0, 0] = _NEVER, 0
        prices = np.where(self._own[:, :wide] <= few[:, before], self._prices[:, :wide], _NEVER)
        for k in range(depth):
            np.minimum((tables[k][before] + prices[k]).min(axis=1), _NEVER, out=tables[k + 1])
        if tables[depth, -1] >= _NEVER:
            return _NEVER, ()
        split, held = list[int](), self.layers
        for k in range(depth - 1, -1, -1):
            own = int((tables[k][before[held]] + prices[k, held]).argmin())
            split.append(own)
            held -= own
        return int(tables[depth, -1]), tuple(split)


class Pricing:
    """Whether a plan exists whose busiest node receives and sends at most `load` bytes, and whose pipelines `within`."""

    def __init__(self, market: Market, load: int, microbatches: int, within: Within, stop: Stop) -> None:
        self.market, self.load, self.microbatches, self.within, self.stop = market, load, microbatches, within, stop
        self.pool: dict[tuple[Layers, int], None] = {}

    def excluded(self, known: Sequence[tuple[Layers, int]]) -> Mixture | None:
        """None where prices exclude such plans; otherwise the mixture that they leave, perhaps of no use."""
        self.pool |= dict.fromkeys(known)
        mixture, nodes, sent = self._solved()
        for _ in range(_ROUNDS):
            if self.stop():
                break
            worth = self.market.worth(nodes, sent, self.load)
            if not worth:
                break
            splits = Splits(self.within, self.market.stage_prices(nodes, sent, self.load))
            new = list(self._dear(splits, worth))
            if not new:
                return None
            fresh = [shape for shape in new if shape not in self.pool]
            if not fresh:
                break
            self.pool |= dict.fromkeys(fresh)
            mixture, nodes, sent = self._solved()
            if sum(m * amount for (_, m), amount in zip(mixture.splits, mixture.amounts, strict=True)) >= self.microbatches:
                break
        return mixture

    def _dear(self, splits: Splits, worth: int) -> Iterator[tuple[Layers, int]]:
        """Shapes so cheap that all there is could pay for enough of them, with their splits; none: it cannot."""
        for depth, most in self.within.possible.items():
            few = (self.microbatches * splits.least[depth] - 1) // worth
            if few < most and (found := self._of(splits, worth, depth, few + 1, most)):
                yield found

    def _of(self, splits: Splits, worth: int, depth: int, fewest: int, most: int) -> tuple[Layers, int] | None:
        """Of `fewest` to `most` microbatches, the most that are too cheap."""
        price, split = splits.cheapest(depth, most)
        if most * worth >= self.microbatches * price:
            return split, most
        while fewest < most:  # fewer may have cheaper splits
            price, split = splits.cheapest(depth, fewest)
            enough = (self.microbatches * price - 1) // worth
            if enough >= most - 1:
                return None
            if enough < fewest:
                return split, fewest
            fewest = enough + 1
        return None

    def _solved(self) -> tuple[Mixture, IntArray, IntArray]:
        """The most microbatches of mixtures of the pool, and the prices of nodes and of sent layers."""
        shapes = tuple(self.pool)
        program = _Program(self.market, self.load, shapes)
        found = linprog(-program.worth, A_ub=program.matrix, b_ub=program.upper, method="highs")
        kinds, layers = len(self.market.runs), self.market.layers
        marginals = np.maximum(np.rint(-found.ineqlin.marginals * _UNIT), 0).astype(np.int64)
        nodes, sent = marginals[:kinds], marginals[kinds : kinds + layers]
        sent[self.market.sizes == 0] = 0
        amounts = found.x[: len(shapes)]
        some = np.flatnonzero(amounts > 1e-9).tolist()
        return Mixture(tuple(shapes[k] for k in some), tuple(float(amounts[k]) for k in some)), nodes, sent


def whole_plan(
    market: Market, load: int, shapes: Sequence[tuple[Layers, int]], microbatches: int
) -> tuple[list[tuple[Layers, int]], list[Interval], IntArray] | None:
    """Pipelines of these shapes that count the microbatches and keep to the load, and a node for each stage.

    That is the stages of different layers, and how many nodes of each kind take each, [kind, stage]. None: not found.
    """
    program = _Program(market, load, shapes)
    count = len(program.worth)
    enough = LinearConstraint(csr_array(program.worth[None]), lb=microbatches)
    found = milp(
        np.zeros(count),
        integrality=np.ones(count),
        constraints=[LinearConstraint(program.matrix, ub=program.upper), enough],
        options={"node_limit": _NODES},
    )
    if found.x is None:
        return None
    amounts = np.rint(found.x).astype(np.int64)
    pipelines = [shape for shape, amount in zip(shapes, amounts.tolist(), strict=False) for _ in range(amount)]
    flow = np.zeros((len(market.runs), len(program.stages)), dtype=np.int64)
    for number, (kind, stage) in program.served.items():
        flow[kind, stage] += amounts[number]
    loose = {stage: int(amounts[number]) for number, stage in program.loose.items()}
    spare = amounts[program.brought]
    for stage, wanted in loose.items():
        for kind in np.flatnonzero(spare).tolist():
            taken = min(wanted, int(spare[kind]))
            flow[kind, stage] += taken
            spare[kind] -= taken
            wanted -= taken
    needed = Counter(stage for layers, _ in pipelines for stage in intervals(layers))
    for number, stage in enumerate(program.stages):  # more nodes than are needed may stand at a stage
        more = int(flow[:, number].sum()) - needed[stage]
        for kind in np.flatnonzero(flow[:, number]).tolist():
            taken = min(more, int(flow[kind, number]))
            flow[kind, number] -= taken
            more -= taken
    return pipelines, list(program.stages), flow


class _Program:
    """Rows: nodes of each kind, layers sent, what owners send, a node for each stage, nodes that bring nothing."""

    def __init__(self, market: Market, load: int, shapes: Sequence[tuple[Layers, int]]) -> None:
        stages = sorted({stage for layers, _ in shapes for stage in intervals(layers)})
        row_of = {stage: number for number, stage in enumerate(stages)}
        kinds, layers, runs = len(market.runs), market.layers, market.runs
        rooms, unit = market.rooms(load), max(1, int(market.sizes.max()))
        at_layer, at_owner, at_stage = kinds, kinds + layers, 2 * kinds + layers
        loose = at_stage + len(stages)
        rows, columns, values, worth = list[int](), list[int](), list[float](), list[float]()
        self.stages, self.served, self.loose = stages, dict[int, tuple[int, int]](), dict[int, int]()
        self.brought = list[int]()

        def column(value: float, entries: Sequence[tuple[int, float]]) -> None:
            for row, entry in entries:
                rows.append(row)
                columns.append(len(worth))
                values.append(entry)
            worth.append(value)

        for split, count in shapes:
            column(count, [(at_stage + row_of[stage], 1.0) for stage in intervals(split)])
        for kind, (first, end) in enumerate(runs):
            self.brought.append(len(worth))
            column(0, [(kind, 1.0), (loose, -1.0)])
            for layer in range(first, end):
                column(0, [(at_layer + layer, -1.0), (at_owner + kind, float(market.sizes[layer]) / unit)])
        for (start, stop), number in row_of.items():
            own, behind = stop - start, layers - stop
            if market.sizes[start:stop].sum() <= load:
                self.loose[len(worth)] = number
                column(0, [(loose, 1.0), (at_stage + number, -1.0), *((at_layer + k, 1.0) for k in range(start, stop))])
            for kind in np.flatnonzero(market.missing[:, behind, own] <= load).tolist():
                first, end = runs[kind]
                if max(first, start) < min(end, stop):
                    lacks = [k for k in range(start, stop) if not first <= k < end]
                    self.served[len(worth)] = kind, number
                    column(0, [(kind, 1.0), (at_stage + number, -1.0), *((at_layer + k, 1.0) for k in lacks)])
        self.upper = np.zeros(loose + 1)
        self.upper[:kinds] = market.counts
        self.upper[at_owner:at_stage] = market.counts * rooms / unit
        self.worth = np.array(worth)
        self.matrix = csr_array((values, (rows, columns)), shape=(loose + 1, len(worth)))
