"""Layout problems with a plan that has buffers enough, for tests of schedules."""

from hypothesis import assume
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.layout.judge import judge_layout
from solvers.ir import LayoutPlan, LayoutProblem
from tests.strategies import layout_plans, layout_problems

PLENTY = 1 << 40
"""Memory that never lacks."""


@st.composite
def planned(draw: st.DrawFn) -> tuple[LayoutProblem, LayoutPlan, int]:
    """Problem, plan, and the judge's objective: of any policies, tied and frozen chunks, one or two ranks."""
    problem = replace(draw(layout_problems(max_blocks=7, max_chunks=7)), device_bytes=PLENTY, host_bytes=PLENTY)
    plan = draw(layout_plans(problem))
    objective_us = judge_layout(problem, plan).objective_us
    assume(objective_us is not None)
    assert objective_us is not None
    return problem, plan, objective_us
