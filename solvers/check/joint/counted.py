"""Adds `moment/3` certificates up: the lower bound that they prove for a `joint` problem, in whole numbers only.

`{"form": "moment/3", "stage": q, "unit": u, "counts": [[column, …], …], "leaves": [{"limits": {count: [low, high]},
"duals": {row: whole number}}, …]}`: as `moment/2`, by the leaves of a tree that splits columns or counts of them.
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
    shown,
)
from solvers.check.joint.moment import Moment
from solvers.ir.joint import JointProblem


def add_up(problem: JointProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """The certificate's fault, where it has one, and the bound in whole µs that it proves (−∞ with a fault)."""
    try:
        found = fields(certificate, ("form", "stage", "unit", "counts", "leaves"), "certificate")
        stage = integer(found["stage"], 0, len(problem.ops) - 1, "stage")
        unit = integer(found["unit"], 1, LARGEST, "unit")
        moment = Moment(problem, stage, _counts(Moment(problem, stage), found["counts"]))
        leaves = [
            read_leaf(one, moment.columns, moment.rows, f"leaves[{number}]")
            for number, one in enumerate(entries(found["leaves"], "leaves"))
        ]
        if not leaves:
            raise Fault("leaves is empty: give one leaf at least")
        require_cover(leaves, moment.columns)
    except Fault as fault:
        return [str(fault)], -math.inf
    least = min(least_value(moment.columns, unit, leaf.limits, leaf.duals, {"late": unit}) for leaf in leaves)
    ticks = sum(op.time_us for op in problem.ops) * moment.unit * unit + least
    return [], -(-ticks // (unit * moment.unit))


def _counts(moment: Moment, value: object) -> list[list[str]]:
    """Lists of whole columns, none twice in a list."""
    counts = [entries(one, f"counts[{number}]") for number, one in enumerate(entries(value, "counts"))]
    for number, columns in enumerate(counts):
        for key in columns:
            column = moment.columns.get(key) if isinstance(key, str) else None
            if column is None or not column.integer:
                raise Fault(f"counts[{number}] has {shown(key)}, which is no whole column of this relaxation")
        if len(set(columns)) < len(columns):
            raise Fault(f"counts[{number}] names a column twice")
    return counts
