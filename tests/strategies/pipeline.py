"""Random `partition` and `pipeline` problems and plans."""

from typing import get_args

from hypothesis import strategies as st

from solvers.ir import (
    PartitionPlan,
    PartitionProblem,
    PipelinePlan,
    PipelineProblem,
    PipelineStage,
    StagePolicies,
)
from solvers.ir.pipeline import HideInStalls, PassOrder
from solvers.partition.stages import layer_problem_of
from tests.strategies.common import names, splits
from tests.strategies.recompute import recompute_layer_plans, recompute_layer_problems


@st.composite
def partition_problems(draw: st.DrawFn, max_stages: int = 4, max_layers: int = 6) -> PartitionProblem:
    """Cost tables with and without nulls; some have no valid partition."""
    stages, layers = draw(st.integers(1, max_stages)), draw(st.integers(1, max_layers))
    row = st.lists(st.none() | st.integers(0, 20), min_size=layers + 1, max_size=layers + 1).map(tuple)
    return PartitionProblem(
        name=draw(names),
        stages=stages,
        layers=layers,
        cost_us=tuple(draw(st.lists(row, min_size=stages, max_size=stages))),
    )


def partition_plans(problem: PartitionProblem) -> st.SearchStrategy[PartitionPlan]:
    """Counts for each stage; they need not sum to the problem's layers, nor fit."""
    counts = st.lists(st.integers(1, problem.layers), min_size=problem.stages, max_size=problem.stages)
    return counts.map(lambda layers: PartitionPlan(layers=tuple(layers)))


@st.composite
def pipeline_problems(draw: st.DrawFn, max_stages: int = 3) -> PipelineProblem:
    """A few small layers on a few stages; budgets from too small to ample."""
    layer = draw(recompute_layer_problems())
    windows = sorted((w for w in layer.windows if w.phase != "stall"), key=lambda w: w.phase, reverse=True)
    size = sum(op.output_bytes for op in layer.ops) + layer.layer_input_bytes
    stages = draw(st.lists(_pipeline_stages(size), min_size=1, max_size=max_stages))
    return PipelineProblem(
        name=draw(names),
        layers=len(stages) + draw(st.integers(0, 3)),
        microbatches=draw(st.integers(1, 4)),
        order=draw(st.sampled_from(get_args(PassOrder))),
        p2p_us=draw(st.integers(0, 5)),
        layer_input_bytes=layer.layer_input_bytes,
        ops=layer.ops,
        windows=tuple(windows),
        backward_us=draw(st.integers(0, 40)),
        stages=tuple(stages),
    )


def _pipeline_stages(size: int) -> st.SearchStrategy[PipelineStage]:
    return st.builds(
        PipelineStage,
        budget_bytes=st.integers(0, 12 * size + 9),
        static_bytes=st.integers(0, 3),
        layer_static_bytes=st.integers(0, 2),
        extra_us=st.tuples(st.integers(0, 5), st.integers(0, 5)),
        extra_bytes=st.integers(0, 2),
    )


@st.composite
def pipeline_plans(draw: st.DrawFn, problem: PipelineProblem) -> PipelinePlan:
    """Every layer on some stage; what each stage's layers do need not be valid."""
    depth = len(problem.stages)
    layers = draw(splits(problem.layers, depth)) if depth > 1 else (problem.layers,)
    own = [draw(recompute_layer_plans(layer_problem_of(problem, p, n))).groups for p, n in enumerate(layers)]
    return PipelinePlan(
        layers=layers,
        stages=tuple(StagePolicies(groups=groups) for groups in own),
        hide_in_stalls=draw(st.sampled_from(get_args(HideInStalls))),
    )
