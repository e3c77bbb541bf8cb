"""The shipped layout instances: rows of ProTrain's table 4, by a roofline; nothing in them was measured."""

import msgspec

from solvers.ir.hardware import Hardware
from solvers.ir.layout import LayoutProblem
from solvers.layout.calibration import TABLE_4, TABLE_4_RANKS, Configuration
from solvers.layout.make import Rank, problem_from_shape
from solvers.workload.shape import ModelShape

INSTANCES: dict[str, Configuration] = {"layout-gpt2-10b-3090": next(row for row in TABLE_4 if row.row == "D")}
"""What is shipped in `experiments/instances`, by the name of its file; the row names shape and machine in `conf`."""


def shipped_problem(name: str, shape: ModelShape, hardware: Hardware) -> LayoutProblem:
    """The instance of that name, from the shape and the machine that its row names."""
    row = INSTANCES[name]
    problem = problem_from_shape(shape, hardware, Rank(ranks=TABLE_4_RANKS), batch=row.batch)
    return msgspec.structs.replace(problem, name=name)
