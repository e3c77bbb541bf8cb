"""Transfers as they could run: a node sends one at a time and receives one at a time, each at its link's full rate."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from solvers.ir.replan import ReplanProblem, Transfer
from solvers.replan.transfer.owners import layer_bytes
from solvers.replan.transfer.topology import Topology
from solvers.replan.transfer.transfer_rounds import transfer_rounds

Side = tuple[str, int]
"""A node as a sender (`out`) or as a receiver (`in`)."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A transfer with its start and end in µs."""

    transfer: Transfer
    start_us: int
    end_us: int


def send_one_by_one(problem: ReplanProblem, transfers: Sequence[Transfer]) -> tuple[Sent, ...]:
    """Each transfer as soon as its sender and its receiver are free, in the order of `transfer_rounds`; in whole µs.

    The objective counts the busiest node alone; here nodes also wait for each other, so the last transfer never ends
    earlier, and where all layers are of one size it ends as the objective says, but for what is rounded up.
    """
    sizes, links = layer_bytes(problem), Topology.of(problem)
    free: dict[Side, int] = defaultdict(int)
    sent = []
    for move in (move for together in transfer_rounds(transfers) for move in together):
        sides = list(_sides(move))
        start = max(free[side] for side in sides)
        end = start + math.ceil(links.link_us(sizes[move.layer], move))
        for side in sides:
            free[side] = end
        sent.append(Sent(move, start, end))
    return tuple(sent)


def busiest_us(problem: ReplanProblem, transfers: Sequence[Transfer]) -> Fraction:
    """The objective's transfer time: the longest that a node sends, or receives, at the links' rates."""
    return Topology.of(problem).transfer_us(problem, transfers)


def _sides(transfer: Transfer) -> Iterator[Side]:
    yield "out", transfer.source
    yield "in", transfer.target
