"""Splits a stretch's relaxation (README, model T) where it runs an op again in part: does it run again there, or not?

Best first. Which op and stage splits a node is chosen by trying some on both sides, and by what such splits gained
before. What is proven is what the weakest leaf proves.
"""

import heapq
import time
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from solvers.engines.duals import UNIT
from solvers.engines.model import Basis, FloatArray
from solvers.ir.solution import Limits
from solvers.joint.asked import solved
from solvers.joint.stretch import Box, Leaf, Stretch, StretchProof

PROGRAMS, FEWEST, COLUMNS, IDLE = 200, 40, 4000, 50
"""Linear programs for one stretch: the most, fewer the more columns there are beyond these, and for no gain."""
TRIED, TRUSTED = 6, 2
"""How many splits of a node are tried at most, and how often a split has been until its gains are known."""
WHOLE = 1e-4
"""What is this close to 0 or 1 is whole."""
PRICE = 100
"""What cannot be in a box is bought at, in the longest transfers."""


def split(stretch: Stretch, proof: StretchProof, limits: Limits, engine: str, programs: int = PROGRAMS) -> StretchProof:
    """The proof, or a better one by a tree of at most so many linear programs."""
    tree = _Tree(stretch, limits, engine, programs)
    found = StretchProof(proof.first, proof.last, tree.leaves())
    return found if found.leaves and found.late > proof.late else proof


@dataclass(order=True)
class _Node:
    """A leaf with what its linear program ended with; the weakest comes first."""

    late: int
    number: int
    leaf: Leaf = field(compare=False)
    x: FloatArray = field(compare=False)
    basis: Basis | None = field(compare=False)


class _Tree:
    def __init__(self, stretch: Stretch, limits: Limits, engine: str, programs: int) -> None:
        self.stretch, self.limits, self.engine = stretch, limits, engine
        self.deadline = time.perf_counter() + limits.time_s
        given = stretch.given
        self.model = stretch.model(PRICE * float(max(1, *given.in_time, *given.out_time)))
        self.keys = list(stretch.upper)
        self.place = {key: number for number, key in enumerate(self.keys) if key.startswith("again/")}
        self.programs, self.most = 0, min(programs, max(FEWEST, programs * COLUMNS // len(self.keys)))
        self.gains: dict[tuple[str, int], tuple[float, int]] = {}

    def leaves(self) -> tuple[Leaf, ...]:
        """Those of the best tree; none where not even the root was solved."""
        root = self._node({}, None)
        if root is None:
            return ()
        nodes, best, idle = [root], root.late, 0
        while self.programs < self.most and idle < IDLE and time.perf_counter() < self.deadline:
            before, halves = self.programs, self._halves(nodes[0])
            if halves is None:
                break
            heapq.heappop(nodes)
            for half in halves:
                heapq.heappush(nodes, half)
            idle = 0 if nodes[0].late > best else idle + self.programs - before
            best = max(best, nodes[0].late)
        return tuple(node.leaf for node in sorted(nodes))

    def _halves(self, node: _Node) -> tuple[_Node, _Node] | None:
        """Both sides of the split that promises most; None where there is none, or a program was not solved."""
        best: tuple[float, str, tuple[_Node, _Node] | None] | None = None
        for key in self._candidates(node):
            sides: tuple[_Node, _Node] | None = None
            if min(self.gains.get((key, side), (0.0, 0))[1] for side in (0, 1)) < TRUSTED:
                sides = self._sides(node, key)
                if sides is None:
                    return None
                worth = self._worth([float(side.late - node.late) for side in sides])
            else:
                worth = self._promise(node, key)
            if best is None or worth > best[0]:
                best = worth, key, sides
        if best is None:
            return None
        return best[2] or self._sides(node, best[1])

    def _sides(self, node: _Node, key: str) -> tuple[_Node, _Node] | None:
        """The node without and with that recomputation."""
        found = []
        for side in (0, 1):
            half = self._node(node.leaf.box | {key: (side, side)}, node)
            if half is None:
                return None
            part = float(node.x[self.place[key]])
            total, count = self.gains.get((key, side), (0.0, 0))
            gain = (half.late - node.late) / max(WHOLE, part if side == 0 else 1 - part)
            self.gains[key, side] = total + gain, count + 1
            found.append(half)
        return found[0], found[1]

    def _candidates(self, node: _Node) -> list[str]:
        """Recomputations that the node's solution does in part, those that promise most first."""
        x, box = node.x, node.leaf.box
        parts = [key for key, place in self.place.items() if key not in box and WHOLE < x[place] < 1 - WHOLE]
        return sorted(parts, key=lambda key: (-self._promise(node, key), key))[:TRIED]

    def _promise(self, node: _Node, key: str) -> float:
        """What a split would gain by what it did before; before that, by the average of all."""
        part = float(node.x[self.place[key]])
        known = [total / count for total, count in self.gains.values()]
        average = sum(known) / len(known) if known else float(UNIT)
        gains = (self.gains.get((key, side)) for side in (0, 1))
        told = [average if gain is None else gain[0] / gain[1] for gain in gains]
        return self._worth([told[0] * part, told[1] * (1 - part)])

    def _worth(self, gains: list[float]) -> float:
        """Both sides count: the weaker one is what is left."""
        return float(np.prod([max(gain, UNIT * 1e-3) for gain in gains]))

    def _node(self, box: Box, parent: _Node | None) -> _Node | None:
        """Solve a box, never bounded worse than what it is part of; None where the engine finds no prices in time."""
        left = self.deadline - time.perf_counter()
        if left <= 0:
            return None
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        for key, (low, high) in box.items():
            lower[self.place[key]], upper[self.place[key]] = low, high
        self.programs += 1
        model, limits = replace(self.model, lower=lower, upper=upper), msgspec.structs.replace(self.limits, time_s=left)
        basis = None if parent is None else parent.basis
        answer = solved(model, limits, self.engine, basis)
        if answer.row_duals is None or answer.x is None:
            return None
        leaf = self.stretch.leaf(answer.row_duals, box)
        if parent is not None and leaf.late < parent.late:
            leaf = Leaf(box, parent.leaf.duals, parent.late)
        return _Node(leaf.late, self.programs, leaf, answer.x, answer.basis)
