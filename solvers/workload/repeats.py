"""Which layer each operator of a measured graph belongs to, found from what repeats (README.md §7)."""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph, Tensor

LAYER_PREFIX = re.compile(r"layer \d+ ")
"""How a computed graph tells the layers' ops apart."""


def plain_name(name: str) -> str:
    """An op's name without the number of its layer."""
    return LAYER_PREFIX.sub("", name)


def repeated_layers(graph: OpGraph) -> tuple[int | None, ...]:
    """For each op its layer, from the longest run of equal blocks of the forward pass; None outside of it.

    A block begins where the fewest bytes cross. A backward op belongs to the layer whose own tensors it reads; others
    are divided between their neighbours likewise. Raises `InvalidInput` where nothing repeats.
    """
    forward = [number for number, op in enumerate(graph.ops) if op.phase == "forward"]
    tokens = [(plain_name(graph.ops[number].name), graph.ops[number].kind) for number in forward]
    start, period, length = _longest_run(tokens)
    if not period:
        raise InvalidInput(
            f"graph {graph.name!r} has no forward ops that repeat: give layer_of_op, or a model of repeated layers"
        )
    first = _best_cut(graph, forward, start, period, length)
    count = (start + length - first) // period
    layers: list[int | None] = [None] * len(graph.ops)
    for place in range(first, first + count * period):
        layers[forward[place]] = (place - first) // period
    return _with_backward(graph, layers)


def _longest_run(tokens: Sequence[Hashable]) -> tuple[int, int, int]:
    """Start, period and length of the run that covers most in at least two whole periods; the shortest period wins."""
    best, found = (0, 0, 0), (0, 0, 0)
    for period in range(1, len(tokens) // 2 + 1):
        run = 0
        for place in range(len(tokens) - period):
            run = run + 1 if tokens[place] == tokens[place + period] else 0
            length = run + period
            worth = (length // period * period, -period, length)
            if run >= period and worth > best:
                best, found = worth, (place - run + 1, period, length)
    return found


def _best_cut(graph: OpGraph, forward: Sequence[int], start: int, period: int, length: int) -> int:
    """The first place of a block: where the fewest bytes cross in the middle of the run; the earliest of equals."""
    crossing = _crossing_bytes(graph, forward)
    slack = range(start, min(start + period, start + length - 2 * period + 1))
    middle = length // period // 2 * period
    return min(slack, key=lambda place: (crossing[place + middle], place))


def _crossing_bytes(graph: OpGraph, ops: Sequence[int]) -> list[int]:
    """For each of a pass's ops, and the end, the bytes born before it in the pass that it or a later one uses."""
    place = {op: number for number, op in enumerate(ops)}
    change = [0] * (len(ops) + 2)
    for tensor in graph.tensors:
        used = [place[use] for use in tensor.uses if use in place]
        if tensor.born in place and used:
            change[place[tensor.born] + 1] += tensor.bytes
            change[max(used[-1], place[tensor.born]) + 1] -= tensor.bytes
    for number in range(len(ops) + 1):
        change[number + 1] += change[number]
    return change


def _with_backward(graph: OpGraph, layers: Sequence[int | None]) -> tuple[int | None, ...]:
    """Backward ops by what they read of one layer only (parameters, inner activations).

    Between two layers the ops that read nothing of the sort are divided where the fewest bytes cross, of equals at
    the last place. What lies outside of all layers (embedding, head) counts as a layer of its own.
    """
    home = _homes(graph, layers)
    backward = [number for number, op in enumerate(graph.ops) if op.phase == "backward"]
    crossing = _crossing_bytes(graph, backward)
    found = list(layers)
    marked = [(place, mark) for place, mark in enumerate(_mark(graph, home, op) for op in backward) if mark]
    for (place, mark), (after, next_mark) in pairwise([(-1, (None,)), *marked, (len(backward), (None,))]):
        cut = min(range(place + 1, after + 1), key=lambda number: (crossing[number], -number))
        cut = after if mark == next_mark else cut
        for number in range(max(place, 0), after):
            found[backward[number]] = (mark if number < cut else next_mark)[0]
    return tuple(found)


def _mark(graph: OpGraph, home: dict[TensorId, int | None], op: int) -> tuple[int | None] | None:
    """The layer that an op reads most tensors of, among those that belong to one layer; None: it reads none."""
    marks = Counter(home[read] for read in graph.ops[op].inputs if read in home)
    return (marks.most_common(1)[0][0],) if marks else None


def _homes(graph: OpGraph, layers: Sequence[int | None]) -> dict[TensorId, int | None]:
    """The one layer in which the forward pass touches a tensor, for tensors that do not cross layers."""
    homes: dict[TensorId, int | None] = {}
    for tensor in graph.tensors:
        where = {layers[use] for use in _touches(tensor) if graph.ops[use].phase == "forward"}
        if len(where) == 1:
            homes[tensor.id] = where.pop()
    return homes


def _touches(tensor: Tensor) -> tuple[int, ...]:
    return tensor.uses if tensor.born is None else (tensor.born, *tensor.uses)
