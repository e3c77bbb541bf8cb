"""How long a rank's moves take: over its link to the host, and over the network to the other ranks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from solvers.ir.errors import InvalidInput, InvalidProblem
from solvers.ir.hardware import HOST, Device, Hardware, Link
from solvers.timeline.collectives import accelerators, reduce_scatter_us

OF_HOST_LINK = ("bytes_per_s", "latency_us", "duplex")


@dataclass(frozen=True)
class Moves:
    """The ranks of a data-parallel group by host, on a machine; all ranks are alike, the first stands for all."""

    hardware: Hardware
    groups: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, hardware: Hardware, ranks: int, hosts: int = 1) -> "Moves":
        """The first devices of the first hosts (`n0.d0`: device d0 of host n0); raises `InvalidInput` for want of any.

        Unlike devices or host links are refused, since one rank stands for all; and a half-duplex host link: `layout`
        moves both ways at once. Links between devices may differ: the slowest counts.
        """
        if ranks < 1 or hosts < 1 or ranks % hosts:
            raise InvalidInput(f"ranks is {ranks} on {hosts} hosts: give at least 1 of each, and a multiple of hosts")
        nodes: dict[str, list[str]] = {}
        for name in accelerators(hardware):
            nodes.setdefault(name.partition(".")[0], []).append(name)
        each = ranks // hosts
        roomy = [tuple(names[:each]) for names in nodes.values() if len(names) >= each]
        if len(roomy) < hosts:
            raise InvalidInput(
                f"{ranks} ranks on {hosts} hosts need {each} devices a host, but hardware {hardware.name!r} has "
                f"{len(roomy)} such hosts: choose fewer ranks, or a larger machine"
            )
        moves = cls(hardware, tuple(roomy[:hosts]))
        moves._require_alike()
        if moves._out is moves._in and moves._out.duplex == "half":
            raise InvalidProblem(
                f"the link between {moves.device!r} and the host is half duplex, which the layout kind cannot state: "
                "give each direction as a simplex link"
            )
        return moves

    def _require_alike(self) -> None:
        """Refuse ranks that differ from the first one in a figure of their device or of its links to the host."""
        first = self._figures(self.device)
        for name in (name for group in self.groups for name in group):
            for what, value in self._figures(name).items():
                if value != first[what]:
                    raise InvalidInput(
                        f"hardware {self.hardware.name!r} gives {name!r} {what} {value}, but {self.device!r} "
                        f"{first[what]}: one rank stands for all, so give all ranks devices that are alike"
                    )

    def _figures(self, name: str) -> dict[str, object]:
        device = self.hardware.device(name)
        figures = {field: getattr(device, field) for field in Device.__struct_fields__ if field != "name"}
        for way, link in (("from", self.hardware.link(HOST, name)), ("to", self.hardware.link(name, HOST))):
            figures |= {f"{field} {way} the host": getattr(link, field) for field in OF_HOST_LINK}
        return figures

    @property
    def device(self) -> str:
        """The first rank's device."""
        return self.groups[0][0]

    @property
    def ranks(self) -> int:
        """W."""
        return sum(map(len, self.groups))

    @property
    def ranks_per_host(self) -> int:
        """How many ranks share a host's memory and processors."""
        return len(self.groups[0])

    @property
    def _in(self) -> Link:
        return self.hardware.link(HOST, self.device)

    @property
    def _out(self) -> Link:
        return self.hardware.link(self.device, HOST)

    def in_us(self, size_bytes: int) -> int:
        """From the host to the device."""
        return self._in.transfer_us(size_bytes)

    def out_us(self, size_bytes: int) -> int:
        """From the device to the host."""
        return self._out.transfer_us(size_bytes)

    def in_of_us(self, sizes: Sequence[int]) -> int:
        """Several storages from the host, one after the other."""
        return _several_us(self._in, sizes)

    def out_of_us(self, sizes: Sequence[int]) -> int:
        """Several storages to the host, one after the other."""
        return _several_us(self._out, sizes)

    def gather_us(self, size_bytes: int) -> int:
        """Every rank's share of `size_bytes` to all ranks; 0 for one rank.

        A ring inside each host moves (L−1)/L of it; before, with several hosts, the ranks of the same place on each
        host gather what the hosts lack, (H−1)/H of it through a host's one port. Links of one bundle share their rate:
        without a network of their own the devices of a host share its port (solvers/workload README §4).
        """
        if self.ranks == 1:
            return 0
        inside_us = max(reduce_scatter_us(self.hardware, group, size_bytes) for group in self.groups)
        return math.ceil(inside_us + self._between_us(size_bytes))

    def reduce_us(self, size_bytes: int) -> int:
        """Sums of `size_bytes`, each rank left with its share: as long as gathering them."""
        return self.gather_us(size_bytes)

    def _between_us(self, size_bytes: int) -> float:
        """A ring of hosts: H − 1 steps of 1/H of the bytes, as slow as its slowest crossing."""
        hosts = len(self.groups)
        if hosts == 1:
            return 0.0
        step = 2 * -(-size_bytes // hosts)  # a group of two moves half of what it is given
        places = [group[0] for group in self.groups]
        crossings = list(pairwise([*places, places[0]])) if hosts > 2 else [(places[0], places[1])]
        return (hosts - 1) * max(reduce_scatter_us(self.hardware, pair, step) for pair in crossings)


def _several_us(link: Link, sizes: Sequence[int]) -> int:
    return math.ceil(sum(link.latency_us + size * 1e6 / link.bytes_per_s for size in sizes))
