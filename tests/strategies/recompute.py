"""Random `recompute-graph` and `recompute-layer` problems and plans."""

from typing import Literal

from hypothesis import strategies as st

from solvers.ir import (
    LayerGroup,
    LayerOp,
    RecomputeGraphPlan,
    RecomputeGraphProblem,
    RecomputeLayerPlan,
    RecomputeLayerProblem,
    RecomputeOp,
    Window,
)
from tests.strategies.common import names


def _earlier(index: int) -> st.SearchStrategy[tuple[int, ...]]:
    if index == 0:
        return st.just(())
    return st.lists(st.integers(0, index - 1), max_size=2, unique=True).map(tuple)


@st.composite
def recompute_graph_problems(draw: st.DrawFn, max_ops: int = 5) -> RecomputeGraphProblem:
    """Small graphs with communication; budgets from too small to ample."""
    count = draw(st.integers(1, max_ops))
    ops = tuple(
        RecomputeOp(
            name=draw(names),
            time_us=draw(st.integers(0, 9)),
            output_bytes=draw(st.integers(0, 5)),
            inputs=draw(_earlier(index)),
            comm=draw(st.booleans()),
        )
        for index in range(count)
    )
    static, total = draw(st.integers(0, 3)), sum(op.output_bytes for op in ops)
    budget = static + draw(st.integers(0, total + 1))
    return RecomputeGraphProblem(name=draw(names), budget_bytes=budget, static_bytes=static, ops=ops)


@st.composite
def recompute_graph_plans(draw: st.DrawFn, problem: RecomputeGraphProblem) -> RecomputeGraphPlan:
    """Any lower-triangular pair of matrices with the diagonal computed."""
    pairs = [(t, i) for t in range(len(problem.ops)) for i in range(t)]
    choice = [draw(st.sampled_from(["compute", "keep", "neither"])) for _ in pairs]
    diagonal = [(t, t) for t in range(len(problem.ops))]
    return RecomputeGraphPlan(
        compute=tuple(diagonal + [pair for pair, how in zip(pairs, choice, strict=True) if how == "compute"]),
        keep=tuple(pair for pair, how in zip(pairs, choice, strict=True) if how == "keep"),
    )


@st.composite
def recompute_layer_problems(draw: st.DrawFn, max_ops: int = 5, max_windows: int = 3) -> RecomputeLayerProblem:
    """A small layer with any number of windows; budgets from too small to ample."""
    phases: list[Literal["forward", "backward", "stall"]] = ["forward", "backward", "stall"]
    windows = st.builds(Window, name=names, phase=st.sampled_from(phases), time_us=st.integers(0, 9))
    ops = tuple(
        LayerOp(
            name=draw(names),
            time_us=draw(st.integers(0, 9)),
            output_bytes=draw(st.integers(0, 5)),
            inputs=draw(_earlier(index)),
            comm=draw(st.booleans()),
            needed=draw(st.booleans()),
        )
        for index in range(draw(st.integers(1, max_ops)))
    )
    return RecomputeLayerProblem(
        name=draw(names),
        layers=draw(st.integers(1, 4)),
        inflight_microbatches=draw(st.integers(1, 3)),
        last_stage=draw(st.booleans()),
        budget_bytes=draw(st.integers(0, 200)),
        static_bytes=draw(st.integers(0, 3)),
        layer_input_bytes=draw(st.integers(0, 3)),
        windows=tuple(draw(st.lists(windows, max_size=max_windows))),
        ops=ops,
    )


@st.composite
def recompute_layer_plans(draw: st.DrawFn, problem: RecomputeLayerProblem) -> RecomputeLayerPlan:
    """One or two groups; each op stored, recomputed somewhere, or neither."""
    parts = [problem.layers]
    if problem.layers > 1 and draw(st.booleans()):
        first = draw(st.integers(1, problem.layers - 1))
        parts = [first, problem.layers - first]
    return RecomputeLayerPlan(groups=tuple(draw(_layer_groups(problem, count)) for count in parts))


@st.composite
def _layer_groups(draw: st.DrawFn, problem: RecomputeLayerProblem, layers: int) -> LayerGroup:
    place = [draw(st.integers(-2, len(problem.windows))) for _ in problem.ops]
    return LayerGroup(
        layers=layers,
        stored=tuple(i for i, w in enumerate(place) if w == -1),
        recomputed=tuple((i, w) for i, w in enumerate(place) if w >= 0),
    )
