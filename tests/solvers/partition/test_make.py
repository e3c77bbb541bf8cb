"""A measured step becomes the problem of training its layers in a pipeline."""

import pytest

from experiments.hardware import read_hardware
from solvers.ir import InvalidInput
from solvers.partition.make import make_pipeline_problem
from solvers.workload import layer_from_graph, measured_layers
from solvers.workload.parts import measured_parts
from tests.solvers.replan.estimate.test_measured import by_hand

HARDWARE = read_hardware("sim-small")


def test_what_the_step_took_is_shared_out_without_loss() -> None:
    """One stage does all that the measured step did; of three, the ends do what is before and behind the layers."""
    graph = by_hand()
    parts, costs, count = measured_parts(graph), layer_from_graph(graph), measured_layers(graph)
    alone = make_pipeline_problem(graph, HARDWARE, 1 << 30)
    (own,) = alone.stages
    assert alone.layers == count and alone.ops[0].name == costs.forward[0].name
    assert count * alone.forward_us + own.extra_us[0] == parts.forward_us.total
    assert count * alone.backward_us + own.extra_us[1] == parts.backward_us.total
    assert own.static_bytes == parts.state_bytes.first + parts.state_bytes.last
    assert alone.p2p_us == 0 and own.budget_bytes == 1 << 30
    two = make_pipeline_problem(graph, HARDWARE, None, stages=2, microbatches=4, bytes_per_s=10**6, order="gpipe")
    assert two.order == "gpipe" and two.microbatches == 4
    assert sum(stage.extra_us[0] for stage in two.stages) == own.extra_us[0]
    assert two.stages[0].budget_bytes == HARDWARE.device().memory_bytes
    assert two.p2p_us == parts.message_bytes


def test_stages_need_a_rate() -> None:
    with pytest.raises(InvalidInput, match="give bytes_per_s"):
        make_pipeline_problem(by_hand(), HARDWARE, None, stages=2)
