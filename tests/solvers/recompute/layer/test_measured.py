"""Problems of the layers that a step repeats, and the way to them through the facade and the command."""

from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir import InvalidInput, OpGraph, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.codec import document_to_raw, read_problem, write_json
from solvers.planner import lower_plan, make_problem
from solvers.recompute.layer.make import layer_windows
from solvers.workload import LayerCosts, Parallelism
from tests.experiments.commands.console import call

HARDWARE = read_hardware("lynx-nvlink")
STAGE = Stage(read_shape("gpt-300m"), Parallelism(tensor=2, microbatch=8), HARDWARE, given_layers=5)


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return STAGE.graph


def check(problem: object, costs: LayerCosts) -> None:
    """The layers of the whole step: all five, one microbatch, everything else static."""
    assert isinstance(problem, RecomputeLayerProblem)
    assert (problem.layers, problem.inflight_microbatches, problem.last_stage) == (5, 1, True)
    assert problem.windows == layer_windows(costs)
    assert [op.time_us for op in problem.ops] == [op.time_us for op in costs.forward]
    assert [op.needed for op in problem.ops] == list(costs.needed)
    assert problem.layer_input_bytes == costs.input_bytes
    # the embedding's output counts here and as the first layer's input, the last layer's output nowhere: as many bytes
    assert problem.static_bytes == STAGE.fixed_bytes


def test_the_layers_of_a_step(graph: OpGraph) -> None:
    check(make_problem("recompute-layer", graph, HARDWARE, None), STAGE.costs)


def test_by_the_command(graph: OpGraph, tmp_path: Path) -> None:
    source, out = tmp_path / "g.json", tmp_path / "p.json"
    write_json(source, document_to_raw(graph))
    made = call(
        "make", "recompute-layer", "--graph", source, "--hardware", "lynx-nvlink", "--budget", "60%", "--out", out
    )
    assert (made.code, made.err) == (0, "")
    problem, _ = read_problem(out)
    check(problem, STAGE.costs)
    assert isinstance(problem, RecomputeLayerProblem)
    assert problem.budget_bytes == max(graph.memory_bytes) * 60 // 100


def test_a_layers_plan_is_no_schedule(graph: OpGraph) -> None:
    problem = make_problem("recompute-layer", graph, HARDWARE, None)
    with pytest.raises(InvalidInput, match="recompute-layer problems cannot be turned into a schedule: this works for"):
        lower_plan(problem, RecomputeLayerPlan(groups=()))
