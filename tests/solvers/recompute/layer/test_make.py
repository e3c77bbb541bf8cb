"""From a layer's operators to a stage's problem."""

import pytest

from solvers.ir import InvalidInput
from solvers.recompute.layer import layer_problem
from solvers.workload import BackwardOp, ForwardOp, LayerCosts
from tests.solvers.recompute.layer.real import costs

LAYER = LayerCosts(
    name="toy",
    input_bytes=7,
    forward=(
        ForwardOp(name="norm", time_us=3, output_bytes=5, reads_input=True),
        ForwardOp(name="all-reduce", time_us=8, output_bytes=4, inputs=(0,), comm=True),
        ForwardOp(name="gather", time_us=0, output_bytes=4, inputs=(1,), comm=True),
    ),
    backward=(
        BackwardOp(name="all-reduce backward", time_us=6, output_bytes=5, reads_gradient=True, comm=True),
        BackwardOp(name="norm backward", time_us=4, output_bytes=5, forward_inputs=(0,), backward_inputs=(0,)),
    ),
)


def test_a_layer_becomes_a_problem() -> None:
    """Windows are the collectives that take time, forward before backward, then the stall."""
    problem = layer_problem(
        LAYER, layers=4, inflight_microbatches=3, last_stage=False, budget_bytes=100, static_bytes=9, stall_us=50
    )
    assert [(window.name, window.phase, window.time_us) for window in problem.windows] == [
        ("all-reduce", "forward", 8),
        ("all-reduce backward", "backward", 6),
        ("cool-down stall", "stall", 50),
    ]
    assert [(op.name, op.inputs, op.comm, op.needed) for op in problem.ops] == [
        ("norm", (), False, True),
        ("all-reduce", (0,), True, False),
        ("gather", (1,), True, False),
    ]
    assert (problem.layers, problem.inflight_microbatches, problem.layer_input_bytes) == (4, 3, 7)
    assert (problem.budget_bytes, problem.static_bytes, problem.last_stage) == (100, 9, False)


def test_megatron_layers_have_four_windows() -> None:
    """Two all-reduces forward, two backward (Lynx §4.2); what is needed is what Korthikanti's formula counts."""
    layer = costs("gpt-7b", 4, 16, "lynx-nvlink")
    problem = layer_problem(layer, layers=1, inflight_microbatches=1, last_stage=False, budget_bytes=0, static_bytes=0)
    assert [window.phase for window in problem.windows] == ["forward", "forward", "backward", "backward"]
    kept = sum(op.output_bytes for op in problem.ops if op.needed) + problem.layer_input_bytes
    assert kept == layer.kept_bytes


@pytest.mark.parametrize("field", ["layers", "inflight_microbatches", "budget_bytes", "static_bytes", "stall_us"])
def test_numbers_out_of_range_are_refused(field: str) -> None:
    numbers = {"layers": 1, "inflight_microbatches": 1, "budget_bytes": 1, "static_bytes": 0, "stall_us": 0}
    with pytest.raises(InvalidInput, match=f"{field} is -1, below"):
        layer_problem(LAYER, last_stage=False, **{**numbers, field: -1})
