"""A trace against a budget: margins, the operator of the peak, and what is refused where."""

import pytest

from experiments.fit.judge import Budget, Told, allocated_peak, row_of, where_of
from experiments.fit.outside import MIB, outside_of
from experiments.fit.trace import graph_trace
from experiments.hardware import hardware_names, read_hardware
from solvers.timeline.segments import Event
from tests.experiments.fit.steps import two_layers

TOLD = Told("plain", "as it is", "by hand", "the sum of its times")


def test_the_row_of_a_step_by_hand() -> None:
    """States of 2, 2 and 12 leave 4 of a segment of 20: too little for a0 (8), which opens another, and just b0's.

    a1 (12) takes the rest of the second; b1 opens a third, where g1 finds its place: 60 in all, none of it given back.
    """
    row = row_of(graph_trace(two_layers()), Budget(64 * MIB), TOLD)
    assert row.allocated_bytes == row.least_allocated_bytes == 48 * MIB
    assert (row.fits, row.margin_allocated_bytes) == (True, 16 * MIB)
    assert row.reserved_bytes == row.least_reserved_bytes == 60 * MIB
    assert row.margin_reserved_bytes == 4 * MIB
    assert row.segments == ((20 * MIB, 3),)
    assert row.step_us == 80
    assert row.peak is not None
    assert (row.peak.operator, row.peak.number, row.peak.phase) == ("layer 1 back", 4, "backward")
    assert row.peak.bytes_by_kind["activations"] == 28 * MIB


def test_a_step_that_fits_in_bytes_only() -> None:
    row = row_of(graph_trace(two_layers()), Budget(50 * MIB), TOLD)
    assert (row.fits, row.fits_allocated) == (False, True)
    refused, why = row.remarks
    assert refused == "refused: a request of 4194304 bytes (4.00 MiB) in layer 1 b (operator 3)"
    assert why.startswith("50331648 bytes (48.00 MiB) of blocks would fit, their segments do not: a request of 1 to 10")
    assert why.endswith("give at least 62914560 bytes (60.00 MiB)")
    assert row.margin_reserved_bytes == -10 * MIB


def test_a_step_that_finds_no_room_at_all() -> None:
    row = row_of(graph_trace(two_layers()), Budget(10 * MIB), TOLD)
    assert (row.fits, row.fits_allocated) == (False, False)
    assert row.remarks == ("refused: a request of 2097152 bytes (2.00 MiB) in the first steps",)


def test_a_peak_before_the_step_is_said() -> None:
    trace = graph_trace(two_layers())
    early = [Event(900, 40 * MIB), Event(900, 0)]
    trace = type(trace)(trace.graph, (*trace.events[:3], *early, *trace.events[3:]), 5, trace.ops, {}, trace.kinds)
    row = row_of(trace, Budget(500 * MIB), TOLD)
    assert row.allocated_bytes == 56 * MIB
    assert row.remarks == ("the steps before need 8388608 bytes (8.00 MiB) more than the profiled one",)


def test_blocks_count_as_they_are_rounded() -> None:
    assert allocated_peak([Event(0, 1), Event(1, 513), Event(0, 0)]) == 512 + 1024


def test_a_step_that_takes_nothing_more_has_its_peak_at_its_begin() -> None:
    trace = graph_trace(two_layers())
    trace = type(trace)(trace.graph, trace.events[:3], 3, (), {}, trace.kinds)
    assert (where_of(trace).operator, where_of(trace).bytes) == ("between operators", 16 * MIB)


@pytest.mark.parametrize("name", hardware_names())
def test_what_no_tensor_owns_is_less_than_a_tenth_of_any_shipped_device(name: str) -> None:
    hardware = read_hardware(name)
    outside = outside_of(hardware, devices=2)
    assert outside.bytes < hardware.device().memory_bytes / 10
    simulated = name.startswith("sim-")
    assert outside.how.startswith("none" if simulated else "assumed")
    assert (outside.bytes == 0) is simulated
    cuda = not simulated and "ascend" not in name and "910b" not in name
    assert outside.parts.get("NCCL", 0) == (256 * MIB if cuda else 0)
    assert outside_of(hardware, given_bytes=5).bytes == 5
