"""Which claims about the shipped instances, all kinds, the judge proves."""

from collections.abc import Iterator
from typing import Any

from experiments.graphs.names import SHIPPED
from solvers.check import check_plan, prove
from solvers.ir.codec import plan_file, read_problem
from solvers.ir.solution import Limits
from solvers.planner import build_solver

SOLVERS = {
    "swap": "milp-swap", "recompute-graph": "opt", "partition": "dp", "pipeline": "bayplan", "replan": "exact-replan",
    "layout": "exact-layout",
}  # fmt: skip
"""The solver of each kind that bounds its plans."""
WORK = 0.2


def shares() -> Iterator[dict[str, Any]]:
    """A row for each instance: what is claimed of it, and whether it is proven."""
    for path in sorted(SHIPPED.glob("*.json")):
        problem, sha256 = read_problem(path)
        found = build_solver(SOLVERS[problem.KIND], {}).solve(problem, Limits(work=WORK))
        file = plan_file(found, problem.KIND, sha256)
        proof = prove(problem, file, check_plan(problem, file, sha256))
        yield {
            "instance": path.stem, "kind": problem.KIND, "solver": found.solver, "status": found.status.value,
            "claim": proof.sentence, "proven": proof.is_proven, "spent_s": round(found.solve_time_s, 2),
        }  # fmt: skip
