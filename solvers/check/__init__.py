"""The independent judge: it knows the problem files and their meaning, and nothing of how a plan was found."""

from solvers.check.plan import check_plan
from solvers.check.proof import Proof, prove
from solvers.check.schedule import check_schedule
from solvers.check.verdict import Verdict

__all__ = ["Proof", "Verdict", "check_plan", "check_schedule", "prove"]
