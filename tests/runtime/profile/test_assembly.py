"""A recording becomes a graph with whatever times it is given."""

import pytest
import torch

from runtime.device import SimDevice
from runtime.device.native import core
from runtime.profile.assembly import Measured, assemble_graph
from runtime.profile.recording import detailed_recording


@pytest.fixture
def recorder(sim: SimDevice) -> core.DetailedRecorder:
    """A product and a sum, recorded with times."""
    left = torch.ones(8, 16, device=sim.device)
    with detailed_recording(sim.device) as recorder:
        (left @ left.t()).add_(1)
    return recorder


def test_times_are_taken_as_they_are_and_arithmetic_from_the_recorder(recorder: core.DetailedRecorder) -> None:
    graph = assemble_graph(recorder, Measured(times_us=[70, 5]), name="pair", source="by hand")
    product, total = graph.ops
    assert (graph.name, graph.source) == ("pair", "by hand")
    assert [op.time_us for op in graph.ops] == [70, 5]
    assert (product.flops, total.flops) == (2 * 8 * 8 * 16, None)
    assert product.bytes == 4 * (8 * 16 + 8 * 16 + 8 * 8)
    assert product.outputs == total.inputs == total.outputs


def test_arithmetic_that_was_not_counted_is_unknown_not_nothing(recorder: core.DetailedRecorder) -> None:
    graph = assemble_graph(recorder, Measured(times_us=[1, 1], arithmetic=False), name="pair", source="by hand")
    assert [(op.flops, op.bytes) for op in graph.ops] == [(None, None)] * 2


def test_each_operator_needs_its_time(recorder: core.DetailedRecorder) -> None:
    with pytest.raises(ValueError, match="shorter"):
        assemble_graph(recorder, Measured(times_us=[1]), name="pair", source="by hand")
