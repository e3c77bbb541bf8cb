"""Which living owner sends each missing layer, so that the busiest sender is done soonest.

The mapping fixes what each node receives; who sends is a flow from layers to their owners, every owner with the same
capacity, and the answer is the least capacity for which there is a flow. Owners hold runs of consecutive layers,
so that no flow algorithm is needed: serve the layers in order, each from the owner whose run ends first (Glover's
greedy for convex bipartite graphs). Proof by exchange: let a flow send layer l from B although A, which ends no later,
holds l too. If A has capacity left, let A send it. If not, A sends a later layer, which B holds as well: swap the two.

With layers of one size this is exact. The first and the last layer may be larger: then the least capacity is that of
divisible layers (a lower bound); whole layers are served by the same greedy, and alike owners share them evenly.
One file: who sends is one greedy for both, within hosts and between them.
"""

import heapq
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice, repeat

import numpy as np
import numpy.typing as npt

from solvers.ir.errors import InvalidInput
from solvers.ir.replan import Transfer
from solvers.replan.transfer.owners import NOTHING, Interval
from solvers.replan.transfer.relief import Need, Relief
from solvers.replan.transfer.topology import Topology

_CELLS = 2**24
"""Of a table of what sizes add up to, the most entries."""


@dataclass(frozen=True)
class Sending:
    """Who sends what is needed, every sender's load, and a lower bound on max(the busiest's, `allowed`).

    The bound holds for any choice of senders; it is `allowed` (nothing more known) where hosts have several nodes.
    `received`, every receiver's load, is empty with one rate, where the choice of senders does not change it.
    """

    needs: Sequence[Need]
    sources: Mapping[Need, int]
    sent: Mapping[int, int]
    received: Mapping[int, int]
    bound: int

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """The transfers in the order of the needs: of all the ways that are tried, one is written down."""
        return tuple(Transfer(layer=layer, source=self.sources[node, layer], target=node) for node, layer in self.needs)

    @property
    def most(self) -> int:
        """The busiest node's load, of those in `sent` and `received`."""
        return max((0, *self.sent.values(), *self.received.values()))


@dataclass(frozen=True)
class Owners:
    """The nodes alive that hold something, by what they hold."""

    held: Mapping[int, Interval]

    @cached_property
    def kinds(self) -> Mapping[Interval, tuple[int, ...]]:
        """Owners of the same run of layers, runs that end sooner first."""
        kinds: dict[Interval, list[int]] = {}
        for node in sorted(self.held):
            if self.held[node] != NOTHING:
                kinds.setdefault(self.held[node], []).append(node)
        return {run: tuple(kinds[run]) for run in sorted(kinds, key=lambda run: (run[1], run[0]))}

    def of(self, layer: int) -> list[Interval]:
        """The runs that hold a layer, those that end sooner first; `InvalidInput` where there is none."""
        runs = [run for run in self.kinds if run[0] <= layer < run[1]]
        if not runs:
            raise InvalidInput(f"layer {layer} has no owner alive to send it: load a checkpoint")
        return runs

    def on_hosts(self, per_host: int) -> Mapping[tuple[int, int], Sequence[int]]:
        """By host of so many nodes and layer, the nodes there that hold it."""
        if per_host not in self._on_hosts:
            holders = self._on_hosts[per_host] = defaultdict[tuple[int, int], list[int]](list)
            for (first, end), nodes in self.kinds.items():
                for node in nodes:
                    for layer in range(first, end):
                        holders[node // per_host, layer].append(node)
        return self._on_hosts[per_host]

    @cached_property
    def _on_hosts(self) -> dict[int, dict[tuple[int, int], list[int]]]:
        return {}

    def first(self, layer: int) -> int:
        """One node that holds a layer."""
        return self.kinds[self.of(layer)[0]][0]


def choose_senders(
    needs: Sequence[Need], owners: Owners, sizes: Sequence[int], topology: Topology, allowed: int = 0
) -> Sending:
    """A living owner for each need; the busiest sends as little as can be, or at most `allowed`.

    `allowed` is what the busiest receiver receives: the transfers end no sooner if senders are less busy than that.
    Owners on the receiver's host come first, the least busy of them; then the busiest nodes are relieved (`relief.py`),
    which is not exact. A layer without an owner raises `InvalidInput`.
    """
    loads: dict[int, int] = {}
    sources = dict[Need, int]()
    if not all(sizes):
        sources = {(node, layer): owners.first(layer) for node, layer in needs if not sizes[layer]}
    if topology.nodes_per_host > 1:
        sources |= _inside(needs, owners, sizes, topology, loads)
    targets = defaultdict[int, list[int]](list)
    for node, layer in (need for need in needs if need not in sources) if sources else needs:
        targets[layer].append(node)
    weights = {layer: sizes[layer] * topology.outside_price for layer in targets}
    flow = _Flow({layer: len(nodes) for layer, nodes in targets.items()}, weights, owners, loads)
    bound = flow.least_capacity(allowed)
    sources |= _name(flow, targets, weights, owners, loads)
    received: Mapping[int, int] = {}
    if topology.nodes_per_host > 1:
        relief = Relief(sources, owners.kinds, sizes, topology)
        relief.run(allowed)
        sources |= relief.sources
        loads, received, bound = relief.sent, relief.received, allowed
    return Sending(needs, sources, loads, received, bound)


def least_sent(demands: Mapping[int, int], owners: Owners, sizes: Sequence[int], topology: Topology) -> int:
    """A load that some sender has at least, where `demands[layer]` copies of each layer are sent, to whomever."""
    weights = {layer: sizes[layer] * topology.least_price for layer in demands}
    return _Flow(demands, weights, owners, {}).least_capacity(0)


def most_copies(owners: Owners, sizes: Sequence[int], most_bytes: int, most: int) -> int:
    """How many nodes, up to `most`, can have each layer that has an owner, the busiest owner sending `most_bytes`.

    No owner sends more than the most that whole layers of its own add up to; below that layers are divisible here.
    """
    layers = [layer for layer, size in enumerate(sizes) if size]
    alive = Counter[int]()
    for (first, end), nodes in owners.kinds.items():
        alive.update(dict.fromkeys(range(first, end), len(nodes)))
    flow = _Flow(dict.fromkeys(layers, 0), {layer: sizes[layer] for layer in layers}, owners, {})
    room = {(first, end): whole_layers(sizes[first:end], most_bytes) for first, end in owners.kinds}

    def too_many(copies: int) -> bool:
        flow.copies = {layer: max(0, copies - alive[layer]) for layer in layers}
        return not flow.serves(room)

    return bisect_left(range(1, most + 1), True, key=too_many)


def whole_layers(sizes: Sequence[int], most: int) -> int:
    """The most up to `most` that layers of these sizes add up to, each taken any number of times."""
    some = sorted({size for size in sizes if size}, reverse=True)
    return max(known + (most - known) // some[-1] * some[-1] for known in sums(some[:-1], most)) if some else 0


def sums(sizes: Sequence[int], most: int) -> set[int]:
    """All that layers of these sizes add up to, up to `most`, each taken any number of times."""
    some = {size for size in sizes if 0 < size <= most}
    unit = math.gcd(*some)
    if some and most // unit <= _CELLS:
        reached = _reached([size // unit for size in some], most // unit)
        return {unit * number for number in np.flatnonzero(reached).tolist()}
    found = {0}
    for size in some:
        found = {known + size * count for known in found for count in range((most - known) // size + 1)}
    return found


def _reached(sizes: Sequence[int], most: int) -> npt.NDArray[np.bool_]:
    """By number up to `most`, whether it is such a sum."""
    reached = np.zeros(most + 1, dtype=np.bool_)
    reached[0] = True
    for size in sizes:
        step = size
        while step <= most:  # any number of times: 0 or 1 times, then 2 or 3 more, …
            reached[step:] |= reached[:-step].copy()
            step *= 2
    return reached


def _inside(
    needs: Sequence[Need], owners: Owners, sizes: Sequence[int], topology: Topology, loads: dict[int, int]
) -> dict[Need, int]:
    """The least busy owner on the same host, for the needs that have one; adds to `loads`."""
    per_host = topology.nodes_per_host
    holders = owners.on_hosts(per_host)
    sources = dict[Need, int]()
    for node, layer in sorted(needs, key=lambda need: -sizes[need[1]]):
        if near := holders.get((node // per_host, layer)):
            owner = near[0] if len(near) == 1 else min(near, key=lambda other: (loads.get(other, 0), other))
            loads[owner] = loads.get(owner, 0) + sizes[layer] * topology.inside_price
            sources[node, layer] = owner
    return sources


class _Flow:
    """How many copies of each layer each kind of owner sends; loads are counted in grains (their common divisor)."""

    def __init__(
        self, copies: Mapping[int, int], weights: Mapping[int, int], owners: Owners, loads: Mapping[int, int]
    ) -> None:
        self.grain = math.gcd(*weights.values()) or 1
        self.copies = {layer: copies[layer] for layer in sorted(copies)}
        self.grains = {layer: weights[layer] // self.grain for layer in self.copies}
        self.runs = {layer: owners.of(layer) for layer in self.copies}
        self.busy = {
            run: Counter([loads.get(node, 0) for node in nodes]) if loads else Counter({0: len(nodes)})
            for run, nodes in owners.kinds.items()
        }
        self.idle = None if loads else {run: len(nodes) for run, nodes in owners.kinds.items()}
        self.amounts: dict[int, dict[Interval, int]] = {}

    def least_capacity(self, allowed: int) -> int:
        """A bound: the least capacity ≥ `allowed` for divisible layers; leaves a flow of whole layers in `amounts`."""
        if not self.copies:
            return allowed
        heaviest = max(self.grains.values()) * self.grain
        start = max(allowed, heaviest, *(max(loads) for loads in self.busy.values()))
        divisible = self._search(start, dict.fromkeys(self.grains, 1))
        self._search(max(heaviest, divisible - heaviest), self.grains)  # sharing among alike may add one layer
        return max(start, divisible // self.grain * self.grain)

    def serves(self, room: Mapping[Interval, int]) -> bool:
        """Whether owners that can send so much of each run can send everything, layers being divisible."""
        left = {run: sum(loads.values()) * (room[run] // self.grain) for run, loads in self.busy.items()}
        return self._served(left, dict.fromkeys(self.grains, 1))

    def _search(self, start: int, units: Mapping[int, int]) -> int:
        """The least capacity of start, start + 1 grain, … that serves all, each layer in pieces of `units` grains."""
        low, high, step = -1, 0, max(self.grains.values())
        while not self._serve(start + high * self.grain, units):
            low, high, step = high, high + step, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            if self._serve(start + middle * self.grain, units):
                high = middle
            else:
                low = middle
        self._serve(start + high * self.grain, units)
        return start + high * self.grain

    def _serve(self, capacity: int, units: Mapping[int, int]) -> bool:
        """Whether owners of this capacity can send everything, and then how (Glover's greedy)."""
        if self.idle is not None:
            each = capacity // self.grain
            return self._served({run: each * count for run, count in self.idle.items()}, units)
        left = {
            run: sum(count * (max(0, capacity - load) // self.grain) for load, count in loads.items())
            for run, loads in self.busy.items()
        }
        return self._served(left, units)

    def _served(self, left: dict[Interval, int], units: Mapping[int, int]) -> bool:
        """The same with what owners of each run have left to send, in grains; uses it up."""
        self.amounts = {}
        for layer, copies in self.copies.items():
            unit = units[layer]
            wanted = copies * (self.grains[layer] // unit)
            taken = {}
            for run in self.runs[layer]:
                taken[run] = min(wanted, left[run] // unit)
                wanted -= taken[run]
                left[run] -= taken[run] * unit
            if wanted:
                return False
            self.amounts[layer] = taken
        return True


def _name(
    flow: _Flow,
    targets: Mapping[int, Sequence[int]],
    weights: Mapping[int, int],
    owners: Owners,
    loads: dict[int, int],
) -> dict[Need, int]:
    """Names the senders: each kind's layers go to its least busy nodes, largest first; adds to `loads`."""
    shares: dict[Interval, list[Need]] = {}
    for layer, amounts in flow.amounts.items():
        waiting = iter(targets[layer])
        for run, count in amounts.items():
            shares.setdefault(run, []).extend(zip(islice(waiting, count), repeat(layer)))
    sources: dict[Need, int] = {}
    for run, share in shares.items():
        nodes, alike = owners.kinds[run], {weights[layer] for _, layer in share}
        if len(alike) == 1 and loads.keys().isdisjoint(nodes):
            sources |= zip(share, cycle(nodes), strict=False)  # what the queue below would do: one after the other
            loads |= _in_turn(nodes, len(share), *alike)
            continue
        queue = [(loads.get(node, 0), node) for node in nodes]
        heapq.heapify(queue)
        for need in sorted(share, key=lambda need: -weights[need[1]]):
            load, node = queue[0]
            sources[need] = node
            loads[node] = load + weights[need[1]]
            heapq.heapreplace(queue, (loads[node], node))
    return sources


def _in_turn(nodes: Sequence[int], count: int, weight: int) -> dict[int, int]:
    """The loads of those that send, with `count` layers of one weight sent by one node after the other."""
    each, more = divmod(count, len(nodes))
    loads = ((node, (each + (number < more)) * weight) for number, node in enumerate(nodes))
    return {node: load for node, load in loads if load}
