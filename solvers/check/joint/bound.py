"""Adds `moment/2` certificates up: the lower bound that they prove for a `joint` problem, in whole numbers only.

`{"form": "moment/2", "stage": q, "unit": u, "duals": {row: whole number}}`: prices of the rows of the relaxation at
stage q, in 1/u ticks. Whatever they are, what they add up to bounds the objective.
"""

import math
from collections.abc import Mapping
from typing import Any

from solvers.check.certificate import LARGEST, Fault, fields, integer, least_value, read_duals
from solvers.check.joint.moment import Moment
from solvers.ir.joint import JointProblem


def add_up(problem: JointProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """The certificate's fault, where it has one, and the bound in whole µs that it proves (−∞ with a fault)."""
    try:
        found = fields(certificate, ("form", "stage", "unit", "duals"), "certificate")
        moment = Moment(problem, integer(found["stage"], 0, len(problem.ops) - 1, "stage"))
        unit = integer(found["unit"], 1, LARGEST, "unit")
        duals = read_duals(found["duals"], moment.rows, "duals")
    except Fault as fault:
        return [str(fault)], -math.inf
    least = least_value(moment.columns, unit, {}, duals, {"late": unit})
    ticks = sum(op.time_us for op in problem.ops) * moment.unit * unit + least
    return [], -(-ticks // (unit * moment.unit))
