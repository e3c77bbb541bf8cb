"""Adds up `cut-relaxation/1` certificates: the lower bound that they prove for a `recompute-graph` problem.

The arithmetic is of whole numbers only. Meaning and proof: README of solvers/recompute/graph.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from solvers.check.recompute_graph_certificate import Box, Fault, Leaf, Prices, read_certificate
from solvers.check.recompute_graph_cut import CutRelaxation
from solvers.ir.recompute import RecomputeGraphProblem

MOST_STEPS = 300_000
"""Work on one window; where its packings are more, its best price a microsecond bounds them: that proves a bit less."""


def add_up(problem: RecomputeGraphProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """The certificate's fault, where it has one, and the bound in whole µs that it proves (−∞ with a fault)."""
    try:
        unit, relaxation, leaves = read_certificate(problem, certificate)
        _require_cover(leaves, relaxation)
    except Fault as fault:
        return [str(fault)], -math.inf
    least = min(_value(leaf, relaxation, unit) for leaf in leaves)
    return [], -(-least // unit)  # rounded up: objectives are whole


def _value(leaf: Leaf, relaxation: CutRelaxation, unit: int) -> int:
    """What the leaf proves for the plans within its limits, in 1/unit µs."""
    total = unit * sum(op.time_us for op in relaxation.ops)
    for zone, prices in leaf.windows.items():
        total -= sum(packed(prices, relaxation.ops[t].time_us) for t in relaxation.windows[zone])
    reduced = dict.fromkeys(leaf.limits, 0)
    priced = {zone: dict(prices) for zone, prices in leaf.windows.items()}
    for key, time, zone in relaxation.hidden:
        reduced[key] = priced.get(zone, {}).get(time, 0)
    for dual, side, row in leaf.duals:
        total += dual * side
        for key, weight in row.weights.items():
            reduced[key] = reduced.get(key, 0) - dual * weight
    for key, change in reduced.items():  # any other column costs nothing or more, and may be 0
        column = relaxation.columns[key]
        cost = unit * column.cost_us + change
        low, high = leaf.limits.get(key, (0, column.upper))
        total += cost * (low if cost > 0 else high)
    return total


@lru_cache(maxsize=10_000)
def packed(prices: Prices, capacity: int) -> int:
    """The most that recomputations of these times, each any number of times, are worth in `capacity` µs.

    Item by item from the best price a microsecond down; a partial packing that cannot beat the best one is left.
    """
    items = sorted(prices, key=lambda item: (-Fraction(item[1], item[0]), item[0]))
    rooms, best, steps = {capacity: 0}, 0, 0
    for (time, price), (next_time, next_price) in pairwise([*items, (1, 0)]):
        reached: dict[int, int] = {}
        for room, worth in rooms.items():
            for count in range(room // time, -1, -1):
                steps += 1
                if steps > MOST_STEPS:
                    return capacity * items[0][1] // items[0][0]
                left, gained = room - count * time, worth + count * price
                best = max(best, gained)
                if gained * next_time + left * next_price <= best * next_time:
                    break  # fewer of this item promise no more
                reached[left] = max(reached.get(left, 0), gained)
        rooms = reached
    return best


def _require_cover(leaves: list[Leaf], relaxation: CutRelaxation) -> None:
    """The leaves are those of a tree that splits one column at a time: undo the splits from the root on."""
    regions: list[tuple[Box, list[Leaf]]] = [({}, leaves)]
    while regions:
        region, inside = regions.pop()
        if len(inside) == 1:
            _require_whole(inside[0], region, relaxation)
            continue
        key, end = _split(inside)
        low, high = region.get(key, (0, relaxation.columns[key].upper))
        regions.append((region | {key: (low, end)}, [leaf for leaf in inside if leaf.limits[key][1] <= end]))
        regions.append((region | {key: (end + 1, high)}, [leaf for leaf in inside if leaf.limits[key][1] > end]))


def _require_whole(leaf: Leaf, region: Box, relaxation: CutRelaxation) -> None:
    for key, (low, high) in leaf.limits.items():
        least, most = region.get(key, (0, relaxation.columns[key].upper))
        if low > least or high < most:
            raise Fault(f"{leaf.place} holds {key} in {low}…{high}, but no other leaf holds the rest of {least}…{most}")


def _split(inside: list[Leaf]) -> tuple[str, int]:
    """A column and a value such that each leaf is on one side: at most the value, or more."""
    for key in min((leaf.limits for leaf in inside), key=len):
        if all(key in leaf.limits for leaf in inside):
            (_, end), *ranges = sorted(leaf.limits[key] for leaf in inside)
            for low, high in ranges:
                if low > end:
                    return key, end
                end = max(end, high)
    raise Fault(
        f"{inside[0].place} and {inside[1].place} are on no two sides of a split: leaves are those of a binary tree"
    )
