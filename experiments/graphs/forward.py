"""Forward passes of several families, drawn at random from a seed; `training` in `names.py` adds their backward pass.

Sizes and times are made up, on purpose unlike those of any shipped instance.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Node:
    """One forward operator: microseconds, bytes of its output, the operators it reads, whether it communicates."""

    time_us: int
    output_bytes: int
    inputs: tuple[int, ...]
    comm: bool = False


Nodes = list[Node]


def _node(source: random.Random, inputs: Sequence[int], scale: float = 1.0) -> Node:
    """Times over one decade, sizes over another, not proportional to each other."""
    time_us = round(8 * scale * 10 ** source.random()) + 2
    return Node(time_us, round(scale * MIB * 10 ** (1.3 * source.random())), tuple(sorted(set(inputs))))


def tree(ops: int, source: random.Random) -> Nodes:
    """A reduction as in a tree LSTM: leaves, then nodes that read two of what is there, until one is left."""
    leaves = (ops + 1) // 2
    found = [_node(source, ()) for _ in range(leaves)]
    loose = list(range(leaves))
    while len(loose) > 1:
        first = source.randrange(len(loose) - 1)
        found.append(_node(source, loose[first : first + 2]))
        loose[first : first + 2] = [len(found) - 1]
    return found


def series_parallel(ops: int, source: random.Random) -> Nodes:
    """Branches within branches: a part is an operator, parts one after another, or parts side by side and a sum."""
    found: Nodes = [_node(source, ())]

    def part(size: int, reads: int) -> int:
        if size <= 2:
            found.append(_node(source, (reads,)))
            return len(found) - 1
        cut = source.randint(1, size - 1)
        if source.random() < 0.55:
            return part(size - cut, part(cut, reads))
        ends = [part(max(1, cut - 1), reads), part(size - cut, reads)]
        found.append(_node(source, ends))
        return len(found) - 1

    end = 0
    while len(found) < ops:
        end = part(min(ops - len(found), max(3, ops // 4)), end)
    return found


def dense(ops: int, source: random.Random) -> Nodes:
    """Blocks of a DenseNet: an operator reads all before it in its block; transitions join and shrink."""
    found: Nodes = [_node(source, ())]
    scale = 1.0
    while len(found) < ops:
        block = [len(found) - 1]
        for _ in range(source.randint(4, 9)):
            found.append(_node(source, block, scale))
            block.append(len(found) - 1)
        found.append(_node(source, block, 2 * scale))
        scale = max(0.25, 0.7 * scale)
    return found[:ops]


def nested(ops: int, source: random.Random) -> Nodes:
    """A U-Net++: a triangle of levels, each node reading its row's earlier nodes and the node below, over and over."""
    found: Nodes = [_node(source, ())]
    while len(found) < ops:
        depth = source.randint(4, 6)
        rows: list[list[int]] = [[] for _ in range(depth)]
        for diagonal in range(depth):
            for level in range(diagonal + 1):
                row = diagonal - level
                reads = [*rows[row], *rows[row + 1][-1:]] if level else [rows[row - 1][0] if row else len(found) - 1]
                found.append(_node(source, reads, 2.0 / (1 << row)))
                rows[row].append(len(found) - 1)
    return found[:ops]


def recurrent(ops: int, source: random.Random) -> Nodes:
    """An unrolled stack of recurrent layers: a cell reads the cell below and the one before; some read farther back."""
    layers = max(2, round(ops**0.5 / 2))
    found: Nodes = []
    for i in range(ops):
        step, layer = divmod(i, layers)
        reads = ([i - 1] if layer else []) + ([i - layers] if step else [])
        if step > 2 and source.random() < 0.15:
            reads.append(source.randrange(0, i - layers))
        found.append(_node(source, reads))
    return found


def transformer(ops: int, source: random.Random) -> Nodes:
    """Layers of attention and an MLP, each of another width and every third of other operators; with all-reduces."""
    found: Nodes = [_node(source, ())]
    stream, number = 0, 0
    while len(found) < ops:
        width = 0.5 + 2 * source.random()

        def add(*inputs: int, scale: float = 1.0, comm: bool = False, width: float = width) -> int:
            plain = _node(source, inputs, scale * width)
            found.append(Node(plain.time_us, plain.output_bytes, plain.inputs, comm))
            return len(found) - 1

        norm = add(stream)
        query, key, value = (add(norm) for _ in range(3))
        scores = add(add(query, key, scale=3.0), scale=3.0)
        joined = add(add(scores, value), scale=2.0, comm=True)
        stream = add(stream, joined)
        inner = add(stream)
        hidden = add(inner, scale=2.0) if number % 3 else add(add(inner, scale=2.0), add(inner, scale=2.0), scale=2.0)
        stream = add(stream, add(add(hidden), scale=2.0, comm=True))
        number += 1
    return found[:ops]


FORWARD: dict[str, Callable[[int, random.Random], Nodes]] = {
    "tree": tree,
    "series-parallel": series_parallel,
    "dense": dense,
    "nested": nested,
    "recurrent": recurrent,
    "transformer": transformer,
}
"""By name of the family: a number of operators and a source of chance."""
