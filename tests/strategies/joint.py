"""Random `joint` problems and plans."""

from hypothesis import strategies as st

from solvers.ir import (
    JointPlan,
    JointProblem,
)
from solvers.joint.draft import plan_of
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.drafts import random_draft


def joint_problems() -> st.SearchStrategy[JointProblem]:
    """Tiny problems of all sorts, as the kind's brute force has them."""
    return st.builds(random_problem, st.integers(0, 2**20))


def joint_plans(problem: JointProblem) -> st.SearchStrategy[JointPlan]:
    """Some recomputations and swaps; most exceed the budget or lack an input."""
    return st.integers(0, 2**20).map(lambda seed: plan_of(*random_draft(problem, seed)))
