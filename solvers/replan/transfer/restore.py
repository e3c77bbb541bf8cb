"""From new pipelines to a restored cluster: nodes for the stages, senders for what they lack, and how long it takes.

Kuhn-Munkres moves the least bytes in all, but what delays training is the busiest node. Where a lower bound does not
show that no mapping is quicker, the mapping is repeated a few times: among those in which every node receives less
than the busiest one moved, and with doubled prices for the layers that the busiest senders send. Where there is none
such, the way found is the quickest. With two bandwidths nodes then exchange places (`exchange.py`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from solvers.ir.errors import InvalidInput
from solvers.ir.replan import MOST_LOAD, NewPipeline, ReplanProblem, Transfer
from solvers.replan.progress import Stop, never
from solvers.replan.transfer.exchange import Places, Way, exchanged
from solvers.replan.transfer.mapping import NodeMapping, alike_stages, hand_out, map_nodes, node_kinds, received_load
from solvers.replan.transfer.owners import (
    NOTHING,
    Interval,
    held_layers,
    idle_nodes,
    intervals,
    layer_bytes,
    unowned_layers,
)
from solvers.replan.transfer.senders import Owners, Sending, choose_senders, least_sent
from solvers.replan.transfer.spread import TRIES, Spread
from solvers.replan.transfer.topology import Topology

Split = tuple[tuple[int, ...], int]
"""Layers per stage, and microbatches."""

_ROUNDS = 6
"""How often the mapping is repeated; three times made 948 random small clusters as quick as the tests' joint model.

Prices double each time: `MOST_LOAD` leaves 64 bits room for that.
"""

_FEW_STAGES = 256
"""Up to so many stages nodes exchange places where there are hosts; with more, mappings alone must do."""

_ROUNDS_AT_SCALE, _ROUNDS_AT_SCALE_ON_HOSTS = 3, 2
"""`_ROUNDS` with more stages than that, as a round takes 10 to 40 ms at 2,048: three were as good as six in 60.

With one rate the first one that is no quicker is the last: none behind such a one was in 37 plans.
"""

_STAGE_S, _PAIR_S = 5e-5, 1e-6
"""About what each stage, and each pair of kinds of nodes and of stages, take."""


@dataclass(frozen=True)
class Restored:
    """The pipelines with their nodes, what travels, and the busiest node's time (without the restart).

    `least_us` bounds `transfer_us` for any mapping and any senders of these pipelines; where they are equal, this is
    the quickest way. `unowned` are layers that no node alive holds: then nothing brings them, and the plan is invalid.
    """

    pipelines: tuple[NewPipeline, ...]
    transfers: tuple[Transfer, ...]
    transfer_us: Fraction
    least_us: Fraction
    unowned: tuple[int, ...]


def restore(problem: ReplanProblem, pipelines: Sequence[Split], topology: Topology | None = None) -> Restored:
    """The quickest way found to go on with these pipelines; `InvalidInput` where they have more stages than nodes."""
    return Restorer(problem, topology).restore(pipelines)


def least_transfer_us(problem: ReplanProblem, pipelines: Sequence[Split], topology: Topology | None = None) -> Fraction:
    """A cheap lower bound of the transfer time for any mapping; `Restored.least_us` is at least as high."""
    return Restorer(problem, topology).least_us(pipelines)


class Restorer:
    """`restore` for one problem and many candidate plans: the current state is read once."""

    def __init__(self, problem: ReplanProblem, topology: Topology | None = None, stop: Stop = never) -> None:
        """`stop`: from when on the first way found is enough."""
        self._problem, self._stop = problem, stop
        self.topology = topology or Topology.of(problem)
        self._unowned = unowned_layers(problem)
        lost = set(self._unowned)  # what cannot travel takes no time
        self.sizes = tuple(0 if layer in lost else size for layer, size in enumerate(layer_bytes(problem)))
        _require_countable(self.sizes, self.topology)
        held = held_layers(problem)
        self.owners = Owners(held)
        self._held = held | dict.fromkeys(idle_nodes(problem), NOTHING)
        self.exchanges = 0
        """Looked at so far, where hosts matter and nodes are told."""
        self.kinds = node_kinds(self._held, self.topology)

    def restore(self, pipelines: Sequence[Split]) -> Restored:
        """As the function of this name."""
        stages = self.stages(pipelines)
        if self._problem.current is None:
            return Restored(self._named(pipelines, tuple(self._held)), (), Fraction(0), Fraction(0), ())
        way, bound = self._quickest(stages)
        return self._restored(pipelines, way, self.topology.time_us(bound))

    def about_s(self, pipelines: Sequence[Split]) -> float:
        """About how long `restore` takes: for callers with little time left."""
        stages = [stage for layers in {layers for layers, _ in pipelines} for stage in intervals(layers)]
        number = sum(len(layers) for layers, _ in pipelines)
        return _STAGE_S * number + _PAIR_S * len(self.kinds) * len(set(stages))

    def placed(
        self,
        pipelines: Sequence[Split],
        needs: Sequence[Interval],
        flow: NDArray[np.int64],
        sent: Mapping[tuple[int, int], int],
        patterns: Sequence[tuple[int, Sequence[tuple[int, int]], int]],
        limit: int = 0,
    ) -> Restored:
        """Where so many nodes of each kind take the stages that need the same, [kind, need], and send so many copies.

        `sent`: of kind and layer; `patterns`: kind, how many layers of each size, and how many nodes send these. On
        hosts senders are chosen here, and nodes exchange stages until none has more than the `limit`, a load.
        """
        stages = self.stages(pipelines)
        alike = alike_stages(stages)
        number = {need: column for column, need in enumerate(needs)}
        flow = flow[:, [number[need] for need in alike]]
        load = received_load(self.kinds, list(alike), self.sizes, self.topology)
        mapping = hand_out(flow, self.kinds, list(alike.values()), load)
        least_us = self.topology.time_us(self._bound(stages, 0))
        if self.topology.nodes_per_host > 1:  # which owners are near is another matter
            return self._spread(pipelines, mapping, max(mapping.most, limit), least_us)
        slots = dict[tuple[int, int], list[int]]()
        free = [iter(kind.nodes) for kind in self.kinds]
        for kind, pattern, count in patterns:
            for node in islice(free[kind], count):
                for size, many in pattern:
                    slots.setdefault((kind, size), []).extend([node] * many)
        senders = dict[int, list[int]]()
        for (kind, layer), count in sent.items():
            waiting = slots.get((kind, self.sizes[layer]), [])
            senders.setdefault(layer, []).extend(waiting[:count])
            del waiting[:count]
        found, loads = dict[tuple[int, int], int](), Counter[int]()
        for node, layer in self._needs(stages, mapping.nodes):
            if self.sizes[layer] and not senders.get(layer):
                return self.mapped(pipelines, mapping, least_us)  # rounding left too few
            source = senders[layer].pop() if self.sizes[layer] else self.owners.first(layer)
            found[node, layer] = source
            loads[source] += self.sizes[layer] * self.topology.outside_price
        most = max([mapping.most, *loads.values()])
        way = Way(mapping.nodes, mapping.most, Sending(tuple(found), found, loads, {}, most))
        return self._restored(pipelines, way, least_us)

    def _spread(self, pipelines: Sequence[Split], mapping: NodeMapping, limit: int, least_us: Fraction) -> Restored:
        """Senders for a mapping, nodes exchanging stages until no node is busier than the limit, or none helps."""
        stages = self.stages(pipelines)
        way = replace(self._way(stages, mapping.nodes, limit), most_received=mapping.most)
        if way.load > limit:
            spread = Spread(stages, way.nodes, way.sending.sources, self._held, self.sizes, self.topology, limit)
            spread.run()
            self.exchanges += TRIES - spread.tries
            needs, sources = self._needs(stages, spread.nodes), spread.sending
            sources |= {need: self.owners.first(need[1]) for need in needs if need not in sources}
            sending = Sending(needs, sources, spread.loads(True), spread.loads(False), 0)
            if sending.most < way.load:
                way = Way(spread.nodes, 0, sending)
        return self._restored(pipelines, way, least_us)

    def _needs(self, stages: Sequence[Interval], nodes: tuple[int, ...]) -> list[tuple[int, int]]:
        """Which nodes lack which layers that someone alive can send."""
        lost, lacked, needs = set(self._unowned), dict[tuple[Interval, Interval], list[int]](), list[tuple[int, int]]()
        for node, stage in zip(nodes, stages, strict=True):
            held = self._held[node]
            if held == stage:
                continue
            if (held, stage) not in lacked:
                lacked[held, stage] = [layer for layer in _lacking(held, stage) if layer not in lost]
            needs += [(node, layer) for layer in lacked[held, stage]]
        return needs

    def mapped(self, pipelines: Sequence[Split], mapping: NodeMapping, least_us: Fraction) -> Restored:
        """The best senders for a mapping; `least_us` is the bound to report."""
        return self._restored(pipelines, self._way(self.stages(pipelines), mapping.nodes, mapping.most), least_us)

    def _restored(self, pipelines: Sequence[Split], way: Way, least_us: Fraction) -> Restored:
        taken = self.topology.time_us(way.load)
        return Restored(self._named(pipelines, way.nodes), way.sending.transfers, taken, least_us, self._unowned)

    def _quickest(self, stages: Sequence[Interval]) -> tuple[Way, int]:
        """The least load found of the busiest node, and a bound on it; mappings are priced as the module says."""
        prices = list(self.sizes)
        mapping = self._map(stages, prices, None)
        assert mapping is not None, "a mapping without limit exists whenever there are enough nodes"
        best = last = self._way(stages, mapping.nodes, mapping.most)
        ways, bound = [best], self._bound(stages, mapping.received)
        hosts = self.topology.nodes_per_host > 1
        few = len(stages) <= _FEW_STAGES
        for _ in range(_ROUNDS if few else _ROUNDS_AT_SCALE_ON_HOSTS if hosts else _ROUNDS_AT_SCALE):
            if best.load <= bound or self._stop():
                return best, bound
            for layer in last.crowded(best.load):
                prices[layer] *= 2
            mapping = self._map(stages, prices, best.load - 1)
            if mapping is None:  # in every mapping some node receives as much
                return best, best.load
            last = self._way(stages, mapping.nodes, mapping.most)
            if last.load >= best.load and not (few or hosts):
                break
            best = min(best, last, key=lambda way: way.load)
            ways.append(last)
        if hosts and few:
            places = Places(stages, self._held, self.sizes, self.topology)
            best = exchanged(ways, places, partial(self._way, stages), bound)
        return best, bound

    def _map(self, stages: Sequence[Interval], prices: Sequence[int], limit: int | None) -> NodeMapping | None:
        return map_nodes(self.kinds, stages, self.sizes, self.topology, prices=prices, limit=limit)

    def least_us(self, pipelines: Sequence[Split]) -> Fraction:
        """As `least_transfer_us`."""
        stages = self.stages(pipelines)
        return self.topology.time_us(self._bound(stages, 0) if self._problem.current is not None else 0)

    def stages(self, pipelines: Sequence[Split]) -> list[Interval]:
        """The layers of every stage; `InvalidInput` where there are more stages than nodes alive."""
        stages = [stage for layers, _ in pipelines for stage in intervals(layers)]
        if len(stages) > len(self._held):
            raise InvalidInput(
                f"the pipelines have {len(stages)} stages, but {len(self._held)} nodes are alive: plan fewer stages"
            )
        return stages

    def _way(self, stages: Sequence[Interval], nodes: tuple[int, ...], most_received: int) -> Way:
        """The best senders for a mapping, given the least load of its busiest receiver."""
        sending = choose_senders(self._needs(stages, nodes), self.owners, self.sizes, self.topology, most_received)
        return Way(nodes, most_received, sending)

    def _bound(self, stages: Sequence[Interval], received: int) -> int:
        """A load that some node has in any mapping, where all nodes together receive at least `received`.

        Someone receives and someone sends the average, and every copy of a layer beyond those alive has to be sent
        by one of its owners. All loads are multiples of the common divisor of the layers' sizes.
        """
        needed = _copies(Counter(stages))
        copies = _copies({run: len(nodes) for run, nodes in self.owners.kinds.items()})
        demands = {layer: more for layer in needed if self.sizes[layer] and (more := needed[layer] - copies[layer]) > 0}
        net = sum(count * self.sizes[layer] for layer, count in demands.items()) * self.topology.least_price
        owners = sum(map(len, self.owners.kinds.values()))
        average = -(-max(received, net) // max(1, min(owners, len(stages))))
        grain = math.gcd(*self.sizes) or 1
        sent = least_sent(demands, self.owners, self.sizes, self.topology)
        return max(sent, -(-average // grain) * grain)

    def _named(self, pipelines: Sequence[Split], nodes: Sequence[int]) -> tuple[NewPipeline, ...]:
        """The pipelines with the nodes of their stages, which stand in order."""
        waiting = iter(nodes)
        return tuple(
            NewPipeline(layers=layers, microbatches=microbatches, nodes=tuple(islice(waiting, len(layers))))
            for layers, microbatches in pipelines
        )


def _require_countable(sizes: Sequence[int], topology: Topology) -> None:
    """Refuse rates of a topology given beside the problem that a problem file could not have."""
    if sum(sizes) * topology.outside_price > MOST_LOAD:
        raise InvalidInput(
            f"{sum(sizes)} bytes at rates of {topology.inside_bytes_per_s} and {topology.outside_bytes_per_s} bytes/s, "
            f"a ratio of {topology.outside_price} to {topology.inside_price}, cannot be counted in 64 bits: "
            "round the rates to a larger common divisor"
        )


def _lacking(held: Interval, needed: Interval) -> list[int]:
    """The layers of `needed` that are not in `held`."""
    if held == needed:
        return []
    return [layer for layer in range(*needed) if not held[0] <= layer < held[1]]


def _copies(runs: Mapping[Interval, int]) -> Counter[int]:
    """How often each layer occurs, given how often each run does."""
    copies: Counter[int] = Counter()
    for run, count in runs.items():
        copies.update(dict.fromkeys(range(*run), count))
    return copies
