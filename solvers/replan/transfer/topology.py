"""Two bandwidths: nodes of one host exchange faster than nodes of different hosts.

A problem file knows the rate between nodes (`bytes_per_s`) and, if it has `hosts`, the rate within one; without,
`Topology.flat`. A load is an integer: bytes times the price of the link that they take, where the prices are to each
other as the links' times, so that no rate is ever divided by.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from solvers.ir.errors import InvalidInput, require_at_least
from solvers.ir.replan import ReplanProblem, Transfer
from solvers.replan.transfer.owners import layer_bytes


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Hosts of `nodes_per_host` consecutive node ids, and the rates within a host and between hosts, in bytes/s.

    A node sends one layer at a time and receives one at a time, both at once; with equal rates that is the problem
    file's transfer time.
    """

    nodes_per_host: int
    inside_bytes_per_s: int
    outside_bytes_per_s: int

    def __post_init__(self) -> None:
        """Refuse hosts without nodes, links that stand still, and hosts that are slower inside than outside."""
        require_at_least(
            1,
            nodes_per_host=self.nodes_per_host,
            inside_bytes_per_s=self.inside_bytes_per_s,
            outside_bytes_per_s=self.outside_bytes_per_s,
        )
        if self.inside_bytes_per_s < self.outside_bytes_per_s:
            raise InvalidInput(
                f"inside_bytes_per_s is {self.inside_bytes_per_s}, below outside_bytes_per_s "
                f"{self.outside_bytes_per_s}: a host is at least as fast inside"
            )

    @classmethod
    def flat(cls, bytes_per_s: int) -> "Topology":
        """Every pair of nodes exchanges at one rate: the problem file's model."""
        return cls(nodes_per_host=1, inside_bytes_per_s=bytes_per_s, outside_bytes_per_s=bytes_per_s)

    @classmethod
    def of(cls, problem: ReplanProblem) -> "Topology":
        """The problem's links."""
        between = problem.bytes_per_s or 1
        if problem.hosts is None or problem.hosts.nodes == 1:
            return cls.flat(between)
        return cls(
            nodes_per_host=problem.hosts.nodes,
            inside_bytes_per_s=problem.hosts.bytes_per_s,
            outside_bytes_per_s=between,
        )

    def host(self, node: int) -> int:
        """The host on which a node stands."""
        return node // self.nodes_per_host

    @cached_property
    def inside_price(self) -> int:
        """Load of one byte that stays on its host."""
        return self.outside_bytes_per_s // math.gcd(self.inside_bytes_per_s, self.outside_bytes_per_s)

    @cached_property
    def outside_price(self) -> int:
        """Load of one byte that travels between hosts."""
        return self.inside_bytes_per_s // math.gcd(self.inside_bytes_per_s, self.outside_bytes_per_s)

    @property
    def least_price(self) -> int:
        """Load of one byte on the best link that there is."""
        return self.inside_price if self.nodes_per_host > 1 else self.outside_price

    def price(self, source: int, target: int) -> int:
        """Load of one byte from `source` to `target`, for each of the two."""
        return self.inside_price if self.host(source) == self.host(target) else self.outside_price

    def time_us(self, load: int) -> Fraction:
        """How long a node is busy with a load, in microseconds, exactly."""
        return Fraction(load * 1_000_000, self.inside_price * self.inside_bytes_per_s)

    def least_us(self, size_bytes: int) -> Fraction:
        """The least time for which this number of bytes keeps a node busy."""
        return self.time_us(size_bytes * self.least_price)

    def link_us(self, size_bytes: int, transfer: Transfer) -> Fraction:
        """Time that this number of bytes takes from one node to another."""
        return self.time_us(size_bytes * self.price(transfer.source, transfer.target))

    def transfer_us(self, problem: ReplanProblem, transfers: Iterable[Transfer]) -> Fraction:
        """The busiest node's time, max over nodes of max(sent, received), in microseconds, exactly."""
        sizes = layer_bytes(problem)
        sent: dict[int, int] = {}
        received: dict[int, int] = {}
        for transfer in transfers:
            load = sizes[transfer.layer] * self.price(transfer.source, transfer.target)
            sent[transfer.source] = sent.get(transfer.source, 0) + load
            received[transfer.target] = received.get(transfer.target, 0) + load
        return self.time_us(max((0, *sent.values(), *received.values())))
