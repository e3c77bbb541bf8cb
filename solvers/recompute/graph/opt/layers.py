"""Repeated layers of a graph, found from its operators alone: no file format says where they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from solvers.recompute.graph.replay import Instance


@dataclass(frozen=True)
class Layers:
    """A run of identical layers: layer l holds the ops first + l·size … first + (l + 1)·size − 1."""

    first: int
    size: int
    count: int

    @property
    def end(self) -> int:
        """The first op behind the last layer."""
        return self.first + self.size * self.count

    def op(self, layer: int, k: int) -> int:
        """Op k of a layer."""
        return self.first + layer * self.size + k

    @cached_property
    def lists(self) -> list[list[int]]:
        """The ops of every layer."""
        return [[self.op(layer, k) for k in range(self.size)] for layer in range(self.count)]


def find_layers(given: Instance, least: int = 2) -> Layers | None:
    """The longest run of identical layers (same bytes, same kind of op, same relative inputs), None without one.

    Times may differ between the layers, as in a measured graph. Layers begin where the fewest of their inputs come from
    the layer before. Only runs that are read again behind their end count: those of a forward pass.
    """
    signature = _signatures(given)
    runs = [(size, *_longest_run(signature[:-size] == signature[size:])) for size in range(2, len(given) // 2 + 1)]
    covered = [((length // size + 1) * size, size, start, length) for size, start, length in runs if length]
    for ops, size, start, length in sorted(covered, key=lambda run: (-run[0], run[1])):
        if ops >= least * size and _is_read_later(given, found := _aligned(given, start, size, length)):
            return found
    return None


def _signatures(given: Instance) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    keys: dict[tuple[object, ...], int] = {}
    found = [
        keys.setdefault(
            (given.size[i], given.comm[i], given.replay[i], tuple(i - j for j in given.inputs[i])), len(keys)
        )
        for i in range(len(given))
    ]
    return np.array(found, dtype=np.int64)


def _longest_run(equal: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[int, int]:
    """Start and length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    place = int(np.argmax(ends - starts))
    return int(starts[place]), int(ends[place] - starts[place])


def _aligned(given: Instance, start: int, size: int, length: int) -> Layers:
    """Cut the run where its layers read the fewest ops of other layers, keeping as many layers as there can be."""
    most = length // size + 1
    spare = min(length - (most - 1) * size, size - 1)
    crossing = _crossings(given, start + size, spare + 1, size)
    shift = min(range(spare + 1), key=lambda shift: (crossing[shift], shift))
    return Layers(start + shift, size, most)


def _crossings(given: Instance, start: int, count: int, size: int) -> list[int]:
    """By the first op of a layer from `start` on, the ops of other layers that it reads."""
    change, known = [0] * (count + 1), dict[int, int]()
    for i in range(start, start + count - 1 + size):
        last = min(i, start + count - 1)
        for j in given.inputs[i]:
            first = max(known.get(j, start), j + 1, i - size + 1)  # the first ones of which op i makes op j count anew
            if first <= last:
                change[first - start] += 1
                change[last + 1 - start] -= 1
                known[j] = last + 1
    return [*accumulate(change)][:count]


def _is_read_later(given: Instance, layers: Layers) -> bool:
    inside: Sequence[int] = range(layers.first, layers.end)
    return any(user >= layers.end for i in inside[: layers.size] for user in given.users[i])
