"""Tiny graphs at budgets down to the least that any plan keeps: `opt` beside the exact model's optimum."""

import math
import random
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from experiments.graphs.cell import judged
from experiments.graphs.forward import FORWARD
from experiments.graphs.names import training
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Limits, Status
from solvers.recompute.graph import OptMilp
from solvers.recompute.graph.instances import peak_bytes, random_layered, wide_layers
from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.opt.solver import Opt

COUNT = 300
"""Feasible graphs wanted."""
WORK = 4.0
"""Of `opt`, the same however busy the machine is."""
POSITIONS = (0.0, 0.0, 0.03, 0.08, 0.15, 0.3)
"""Budgets between the bound on the least one and the peak without recomputation; most are tight."""


def tiny(seed: int) -> RecomputeGraphProblem:
    """A graph of 12 to 20 operators, of each family in turn."""
    source = random.Random(f"tiny {seed}")
    ops, families = source.randint(12, 20), ["layered", "wide", *FORWARD]
    family = families[seed % len(families)]
    if family == "layered":
        found = random_layered(ops, width=3, seed=seed)
    elif family == "wide":
        found = wide_layers(ops, seed=seed)
    else:
        found = training(f"{family}-{ops}-s{seed}", FORWARD[family](ops // 2, source), source)
    least, most = least_budget_bytes(found), peak_bytes(found)
    position = POSITIONS[seed // len(families) % len(POSITIONS)]
    return replace(found, budget_bytes=least + round(position * (most - least)))


def rows(first: int = 0, count: int = COUNT) -> Iterator[dict[str, Any]]:
    """A row for each seed until so many graphs were feasible; what fits without recomputation is left out."""
    seed, feasible = first, 0
    while feasible < count:
        problem = tiny(seed)
        if peak_bytes(problem) > problem.budget_bytes:
            row = {"seed": seed, **compared(problem)}
            feasible += row["optimum"] is not None
            yield row
        seed += 1


def compared(problem: RecomputeGraphProblem) -> dict[str, Any]:
    """The exact model on CP-SAT until it ends, and `opt`; both answers judged."""
    exact = OptMilp(engine="cpsat").solve(problem, Limits(time_s=math.inf))
    assert exact.status in (Status.OPTIMAL, Status.INFEASIBLE)
    found = Opt().solve(problem, Limits(work=WORK))
    answer = judged(problem, found)
    return {
        "ops": len(problem.ops), "optimum": exact.objective, "status": answer["status"],
        "objective": answer["objective"], "proven": answer["proven"], "spent_s": round(found.solve_time_s, 2),
    }  # fmt: skip
