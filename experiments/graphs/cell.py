"""One answer in a process of its own: `python -m experiments.graphs.cell '{…}'` prints what came out as JSON."""

import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from experiments.graphs.names import by_name
from solvers.check import check_plan, prove
from solvers.ir.codec import plan_file, problem_sha256, read_problem
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.recompute import RecomputeGraphPlan, RecomputeGraphProblem
from solvers.ir.solution import Limits, Solution
from solvers.planner import build_solver

TRACED = "traced:"
"""What names of models that are measured begin with."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a cell is of: a graph by name (`traced:MODEL@POSITION`: measured) or file, a solver, and its limits.

    `unit`: all times are multiplied by it first and rounded, for the same graph in other units.
    """

    graph: str
    solver: str
    time_s: float | None = None
    work: float | None = None
    threads: int = 1
    seed: int = 0
    unit: float = 1.0

    @property
    def limits(self) -> Limits:
        """As the solvers take them."""
        return Limits(time_s=self._time_s, work=self.work, threads=self.threads, seed=self.seed)

    @property
    def _time_s(self) -> float:
        if self.time_s is not None:
            return self.time_s
        if self.work is None:
            raise InvalidInput(f"{self.solver} on {self.graph} has no limit: give time_s or work")
        return math.inf


def problem_of(asked: Asked) -> RecomputeGraphProblem:
    """The graph, in the unit of time asked for."""
    if asked.graph.endswith(".json"):
        problem, _ = read_problem(Path(asked.graph))
        if not isinstance(problem, RecomputeGraphProblem):
            raise InvalidInput(f"{asked.graph} holds a {problem.KIND} problem: give a recompute-graph problem")
    elif asked.graph.startswith(TRACED):
        from experiments.graphs.traced import traced

        name, _, position = asked.graph.removeprefix(TRACED).partition("@")
        problem = traced(name, float(position))
    else:
        problem = by_name(asked.graph)
    if asked.unit == 1.0:
        return problem
    return replace(problem, ops=tuple(replace(op, time_us=round(op.time_us * asked.unit)) for op in problem.ops))


def answer(asked: Asked) -> dict[str, Any]:
    """What the solver answered, judged; a plan that the judge refuses is an error."""
    problem = problem_of(asked)
    began = time.perf_counter()
    found: Solution[RecomputeGraphPlan] = build_solver(asked.solver, {}).solve(problem, asked.limits)
    spent = time.perf_counter() - began
    return {**asdict(asked), **judged(problem, found), "ops": len(problem.ops), "wall_s": round(spent, 2)}


def judged(problem: RecomputeGraphProblem, found: Solution[RecomputeGraphPlan]) -> dict[str, Any]:
    """The answer's figures, and what the judge proves of them; raises where it finds a fault."""
    sha256 = problem_sha256(problem)
    file = plan_file(found, problem.KIND, sha256)
    verdict = check_plan(problem, file, sha256)
    faults = [text for text in verdict.violations if found.plan is not None or "no decision to judge" not in text]
    if faults:
        raise BayplanError(f"the judge refuses {found.solver}'s answer on {problem.name}: {faults[0]}")
    proof = prove(problem, file, verdict)
    return {
        "status": found.status.value,
        "objective": found.objective,
        "bound": found.bound,
        "base": found.base,
        "gap": found.gap,
        "overhead_gap": found.overhead_gap,
        "proven": proof.is_proven,
        "engine": found.engine,
        "reason": found.reason,
    }


if __name__ == "__main__":
    print(json.dumps(answer(Asked(**json.loads(sys.argv[1])))))
