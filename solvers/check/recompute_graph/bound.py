"""Adds up `cut-relaxation/1` certificates: the lower bound that they prove for a `recompute-graph` problem.

The arithmetic is of whole numbers only. Meaning and proof: README of solvers/recompute/graph.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from solvers.check.certificate import Fault, least_value, require_cover
from solvers.check.recompute_graph.certificate import Leaf, Prices, read_certificate
from solvers.check.recompute_graph.cut import CutRelaxation
from solvers.ir.recompute import RecomputeGraphProblem

MOST_STEPS = 300_000
"""Steps spent on packing one window; beyond, its best price per microsecond bounds the packings, which proves less."""


def add_up(problem: RecomputeGraphProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """The certificate's fault, where it has one, and the bound in whole µs that it proves (−∞ with a fault)."""
    try:
        unit, relaxation, leaves = read_certificate(problem, certificate)
        require_cover(leaves, relaxation.columns)
    except Fault as fault:
        return [str(fault)], -math.inf
    least = min(_value(leaf, relaxation, unit) for leaf in leaves)
    step = math.gcd(*(op.time_us for op in problem.ops)) or 1
    return [], -(-least // (unit * step)) * step  # rounded up: objectives are whole multiples of what divides all times


def _value(leaf: Leaf, relaxation: CutRelaxation, unit: int) -> int:
    """What the leaf proves for the plans within its limits, in 1/unit µs."""
    total = unit * sum(op.time_us for op in relaxation.ops)
    for zone, prices in leaf.windows.items():
        total -= sum(packed(prices, relaxation.ops[t].time_us) for t in relaxation.windows[zone])
    reduced = {}
    priced = {zone: dict(prices) for zone, prices in leaf.windows.items()}
    for key, time, zone in relaxation.hidden:
        reduced[key] = priced.get(zone, {}).get(time, 0)
    return total + least_value(relaxation.columns, unit, leaf.limits, leaf.duals, reduced)


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
