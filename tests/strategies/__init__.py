"""Random small problems and plans of every kind, shared by all tests: well-formed, shrinking towards the plainest."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from solvers.ir import Plan, Problem
from solvers.kinds import KINDS
from tests.strategies.common import names, tensor_ids
from tests.strategies.joint import joint_plans, joint_problems
from tests.strategies.layout import layout_plans, layout_problems
from tests.strategies.pipeline import partition_plans, partition_problems, pipeline_plans, pipeline_problems
from tests.strategies.recompute import (
    recompute_graph_plans,
    recompute_graph_problems,
    recompute_layer_plans,
    recompute_layer_problems,
)
from tests.strategies.replan import replan_plans, replan_problems
from tests.strategies.swap import swap_plans, swap_problems

__all__ = [
    "joint_plans",
    "joint_problems",
    "layout_plans",
    "layout_problems",
    "names",
    "partition_plans",
    "partition_problems",
    "pipeline_plans",
    "pipeline_problems",
    "plans",
    "problems",
    "recompute_graph_plans",
    "recompute_graph_problems",
    "recompute_layer_plans",
    "recompute_layer_problems",
    "replan_plans",
    "replan_problems",
    "swap_plans",
    "swap_problems",
    "tensor_ids",
]


def _of(kind: str, what: str) -> Callable[..., Any]:
    """This package's strategy for a kind: `<kind>_problems()` or `<kind>_plans(problem)`."""
    strategy: Callable[..., Any] = globals()[f"{kind.replace('-', '_')}_{what}"]
    return strategy


problems: st.SearchStrategy[Problem] = st.one_of(*(_of(kind, "problems")() for kind in KINDS))
"""A problem of any kind."""


def plans(problem: Problem) -> st.SearchStrategy[Plan]:
    """A well-formed plan of the problem's kind, valid or not."""
    found: st.SearchStrategy[Plan] = _of(problem.KIND, "plans")(problem)
    return found
