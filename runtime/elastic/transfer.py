"""Layers' states from peers, in the rounds of the plan: weights, buffers and optimizer states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runtime.elastic.groups import Groups
from runtime.elastic.job import ElasticJob
from runtime.elastic.layer import Layer
from runtime.elastic.messages import Move
from runtime.elastic.moments import Moments

FIRST = 1 << 30
"""Tags of transfers begin behind those of a step's messages."""


@dataclass
class Exchange:
    """A node's part of the transfers: what it holds, what it lacks, and whom it talks to."""

    node: int
    held: Mapping[int, Layer]
    groups: Groups
    moments: Moments
    sending: list[Any] = field(default_factory=list)
    """What is to be kept until all members have met after the transfers."""

    def run(self, moves: Sequence[Move], fresh: Mapping[int, Layer], step: int) -> int:
        """Sends and receives what the moves say; returns the bytes received. `fresh` are the layers to be filled.

        Sends do not wait for each other, so that no order of rounds can lock up.
        """
        packed: dict[int, Tensor] = {}
        received = 0
        for number, move in enumerate(moves):
            tag = FIRST + 2 * number
            if move.source == self.node:
                if move.layer not in packed:
                    packed[move.layer] = self.held[move.layer].packed()
                size = torch.tensor([packed[move.layer].numel()])
                self.sending.append(self.groups.send(size, move.target, tag))
                self.moments.at("transfer", step)
                self.sending.append(self.groups.send(packed[move.layer], move.target, tag + 1))
            elif move.target == self.node:
                self.moments.at("transfer", step)
                received += self._receive(move, fresh[move.layer], tag)
        return received

    def _receive(self, move: Move, layer: Layer, tag: int) -> int:
        size = torch.zeros(1, dtype=torch.int64)
        self.groups.recv(size, move.source, tag)
        body = torch.empty(int(size), dtype=torch.uint8)
        self.groups.recv(body, move.source, tag + 1)
        layer.unpack(body)
        return body.numel()


def made_for(job: ElasticJob, moves: Sequence[Move], node: int, canonical: bool) -> dict[int, Layer]:
    """Empty places for the layers that a node is to receive."""
    return {move.layer: Layer(job, move.layer, canonical) for move in moves if move.target == node}
