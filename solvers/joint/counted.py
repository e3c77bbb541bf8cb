"""Splits the relaxation at a moment (README, model M) by counts: of like outputs, how many are kept, leave, run again.

Layers alike make solutions of the linear program alike, each of which does something in part: 16.5 of 32 outputs leave.
No plan does, so it lets at most 16 leave, or at least 17. What is proven is what the weakest leaf proves.
"""

import heapq
import time
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from solvers.engines.duals import LARGEST, UNIT
from solvers.engines.model import Basis, FloatArray
from solvers.ir.solution import Limits
from solvers.joint.asked import solved
from solvers.joint.moment import Proof, Relaxation

PROGRAMS, TRIED = 60, 6
"""Linear programs at most; how many counts of a node are tried on both sides."""
WHOLE = 1e-4
"""What is this close to a whole number is one."""

Box = dict[int, tuple[int, int]]
"""Of some counts, the least and the most."""


@dataclass(frozen=True)
class CountedLeaf:
    """What prices prove of the plans within a box: the step takes `ticks`/UNIT at least."""

    box: Box
    duals: dict[str, int]
    ticks: int


@dataclass(frozen=True)
class CountedProof:
    """At one moment, by the leaves of a tree that holds every plan in some leaf's box; `counts`: the columns summed."""

    stage: int
    bound_us: int
    counts: tuple[tuple[str, ...], ...]
    leaves: tuple[CountedLeaf, ...]

    @property
    def certificate(self) -> dict[str, Any]:
        """For anyone to add up; without the counts that no leaf names."""
        named = {f"count/{number}" for leaf in self.leaves for number in leaf.box}
        named |= {key.replace("sum", "count") for leaf in self.leaves for key in leaf.duals if key.startswith("sum/")}
        used = [number for number in range(len(self.counts)) if f"count/{number}" in named]
        place = {number: new for new, number in enumerate(used)}
        leaves = []
        for leaf in self.leaves:
            limits = {f"count/{place[number]}": list(pair) for number, pair in leaf.box.items()}
            duals = {
                f"sum/{place[int(key[4:])]}" if key.startswith("sum/") else key: dual
                for key, dual in leaf.duals.items()
            }
            leaves.append({"limits": limits, "duals": duals})
        counts = [list(self.counts[number]) for number in used]
        return {"form": "moment/3", "stage": self.stage, "unit": UNIT, "counts": counts, "leaves": leaves}


def counted(relaxation: Relaxation, proof: Proof, limits: Limits, engine: str) -> CountedProof | None:
    """A better proof at the moment of one that is known, by a tree of few linear programs; None where there is none."""
    tree = _Tree(relaxation, limits, engine)
    leaves = tree.leaves()
    if not leaves:
        return None
    ticks = min(leaf.ticks for leaf in leaves)
    bound_us = -(-ticks // (UNIT * relaxation.given.ticks))
    return CountedProof(relaxation.q, bound_us, tree.counts, leaves) if bound_us > proof.bound_us else None


def refined(relaxation: Relaxation, proof: Proof, limits: Limits, engine: str) -> tuple[Proof, CountedProof | None]:
    """The moment with the rows that its solutions break, and by counts, within the same time."""
    deadline = time.perf_counter() + limits.time_s
    proof = relaxation.refined(proof, limits, engine)
    left = max(0.0, deadline - time.perf_counter())
    return proof, counted(relaxation, proof, msgspec.structs.replace(limits, time_s=left), engine)


@dataclass(order=True)
class _Node:
    """A leaf with what its linear program ended with; the weakest comes first."""

    ticks: int
    number: int
    leaf: CountedLeaf = field(compare=False)
    x: FloatArray = field(compare=False)
    basis: Basis | None = field(compare=False)


class _Tree:
    def __init__(self, relaxation: Relaxation, limits: Limits, engine: str) -> None:
        self.relaxation, self.limits, self.engine = relaxation, limits, engine
        self.deadline, self.programs = time.perf_counter() + limits.time_s, 0
        self.keys = list(relaxation.upper)
        self.counts = self._alike()
        self.model = relaxation.model(self.counts)

    def _alike(self) -> tuple[tuple[str, ...], ...]:
        """The columns that say the same of outputs of the same size and time."""
        given, found = self.relaxation.given, dict[tuple[str, int, int], list[str]]()
        for key in self.keys:
            name, _, op = key.partition("/")
            if op:
                found.setdefault((name, given.graph.size[int(op)], given.time[int(op)]), []).append(key)
        return tuple(tuple(columns) for columns in found.values() if len(columns) > 1)

    def leaves(self) -> tuple[CountedLeaf, ...]:
        """Those of the tree; none where not even the root was solved, or nothing could be split."""
        root = self._node({}, None)
        if root is None:
            return ()
        nodes = [root]
        while self.programs < PROGRAMS and time.perf_counter() < self.deadline:
            halves = self._halves(nodes[0])
            if halves is None:
                break
            heapq.heappop(nodes)
            for half in halves:
                heapq.heappush(nodes, half)
        return tuple(node.leaf for node in sorted(nodes)) if len(nodes) > 1 else ()

    def _halves(self, node: _Node) -> tuple[_Node, _Node] | None:
        """Both sides of the split whose weaker one is strongest; None where there is none."""
        parts = node.x[len(self.keys) :]
        order = np.argsort(-np.abs(parts - np.round(parts)), kind="stable").tolist()
        best: tuple[int, int, tuple[_Node, _Node]] | None = None
        for number in [number for number in order if abs(parts[number] - round(parts[number])) > WHOLE][:TRIED]:
            low, high = node.leaf.box.get(number, (0, len(self.counts[number])))
            most = int(np.floor(parts[number]))
            below = self._node(node.leaf.box | {number: (low, most)}, node)
            above = self._node(node.leaf.box | {number: (most + 1, high)}, node)
            if below is None or above is None:
                continue
            worth = min(below.ticks, above.ticks), below.ticks + above.ticks
            if best is None or worth > best[:2]:
                best = *worth, (below, above)
        return None if best is None else best[2]

    def _node(self, box: Box, parent: _Node | None) -> _Node | None:
        """Solve a box, never bounded worse than what it is part of; None where the engine finds no prices in time."""
        left = self.deadline - time.perf_counter()
        if left <= 0:
            return None
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        for number, (low, high) in box.items():
            lower[len(self.keys) + number], upper[len(self.keys) + number] = low, high
        self.programs += 1
        model, limits = replace(self.model, lower=lower, upper=upper), msgspec.structs.replace(self.limits, time_s=left)
        answer = solved(model, limits, self.engine, None if parent is None else parent.basis)
        if answer.row_duals is None or answer.x is None:
            return None
        leaf = self._leaf(answer.row_duals, box)
        if parent is not None and leaf.ticks < parent.ticks:
            leaf = CountedLeaf(box, parent.leaf.duals, parent.ticks)
        return _Node(leaf.ticks, self.programs, leaf, answer.x, answer.basis)

    def _leaf(self, row_duals: FloatArray, box: Box) -> CountedLeaf:
        rows = len(self.relaxation.rows)
        whole = self.relaxation.whole(row_duals[:rows])
        cost = {key: 0 for columns in self.counts for key in columns}
        ticks = 0
        for number, dual in enumerate(row_duals[rows:].tolist()):
            price = int(max(-LARGEST, min(LARGEST, dual * UNIT)))
            if price == 0:
                continue
            whole[f"sum/{number}"] = price
            for key in self.counts[number]:
                cost[key] -= price
            low, high = box.get(number, (0, len(self.counts[number])))
            ticks += price * (low if price > 0 else high)
        ticks += self.relaxation.before[-1] * UNIT + self.relaxation.value(whole, cost)
        return CountedLeaf(box, {key: dual for key, dual in whole.items() if dual}, ticks)
