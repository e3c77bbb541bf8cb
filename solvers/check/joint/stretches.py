"""Adds `stretches/1` certificates up: the lower bound that they prove for a `joint` problem, in whole numbers only.

`{"form": "stretches/1", "unit": u, "stretches": [{"first": a, "last": b, "leaves": [{"limits": {column: [low, high]},
"duals": {row: whole number}}, …]}, …]}`: prices of the rows of the relaxation of stages a to b, in 1/u ticks, by the
leaves of a tree. Stretches have no stage behind their first in common, so what each proves of its stages adds up.
"""

import math
from collections.abc import Mapping
from typing import Any

from solvers.check.certificate import (
    LARGEST,
    Fault,
    entries,
    fields,
    integer,
    least_value,
    read_leaf,
    require_cover,
)
from solvers.check.joint.stretch import Stretch
from solvers.ir.joint import JointProblem


def add_up(problem: JointProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """The certificate's fault, where it has one, and the bound in whole µs that it proves (−∞ with a fault)."""
    try:
        found = fields(certificate, ("form", "unit", "stretches"), "certificate")
        unit = integer(found["unit"], 1, LARGEST, "unit")
        ticks = 1 if problem.link.latency_ns is None else 1000
        late, before = 0, 0
        for number, part in enumerate(entries(found["stretches"], "stretches")):
            place = f"stretches[{number}]"
            stretch = fields(part, ("first", "last", "leaves"), place)
            first = integer(stretch["first"], before, len(problem.ops) - 1, f"{place}.first")
            before = integer(stretch["last"], first, len(problem.ops) - 1, f"{place}.last")
            late += _late(Stretch(problem, first, before), unit, stretch["leaves"], f"{place}.leaves")
    except Fault as fault:
        return [str(fault)], -math.inf
    total = sum(op.time_us for op in problem.ops) * ticks * unit + late
    return [], -(-total // (unit * ticks))


def _late(stretch: Stretch, unit: int, value: object, place: str) -> int:
    """How much longer than their own time the stretch's stages take, in 1/unit ticks: what every leaf proves, or 0."""
    leaves = [
        read_leaf(one, stretch.columns, stretch.rows, f"{place}[{number}]")
        for number, one in enumerate(entries(value, place))
    ]
    if not leaves:
        raise Fault(f"{place} is empty: give one leaf at least")
    require_cover(leaves, stretch.columns)
    return max(0, min(least_value(stretch.columns, unit, leaf.limits, leaf.duals, {}) for leaf in leaves))
