"""Joint problems at a budget between the least feasible one and the peak with everything kept."""

from msgspec.structs import replace

from solvers.ir.joint import JointProblem
from solvers.joint.choice import keep_all
from solvers.joint.draft import kept_of
from solvers.joint.given import given_of, least_budget_bytes


def peak_bytes(problem: JointProblem) -> int:
    """The most in use where each output is kept from its op to its last reader."""
    given = given_of(problem)
    return max(kept_of(given, keep_all(given).again).peaks)


def at_position(problem: JointProblem, position: float) -> JointProblem:
    """The problem with its budget at 0 (the least feasible one, were the host unlimited) … 1 (everything kept)."""
    least, most = least_budget_bytes(problem), peak_bytes(problem)
    return replace(problem, budget_bytes=least + round(position * (most - least)))
