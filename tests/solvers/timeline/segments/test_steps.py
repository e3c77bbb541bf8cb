"""Steps of which only sizes and uses are known: what no tensor explains is asked for in blocks such as the step has."""

import pytest

from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.timeline.segments import SegmentSettings, held_by_steps

MIB = 1 << 20


def step(tensor_bytes: int) -> OpGraph:
    """One tensor, made and used, while 3 MiB more are in use that belong to none."""
    ops = (
        Op(name="make", phase="forward", time_us=1, outputs=(0,)),
        Op(name="use", phase="backward", time_us=1, inputs=(0,)),
    )
    tensors = (Tensor(id=0, bytes=tensor_bytes, kind="activation", born=0, uses=(1,)),)
    return OpGraph(name="one", ops=ops, tensors=tensors, memory_bytes=(tensor_bytes, tensor_bytes + 3 * MIB))


@pytest.mark.parametrize(("tensor_bytes", "held_bytes"), [(MIB // 2, 4 * MIB), (MIB, 4 * MIB), (2 * MIB, 20 * MIB)])
def test_a_step_of_small_tensors_asks_for_no_large_segment(tensor_bytes: int, held_bytes: int) -> None:
    """One block of 3 MiB would take 20 of its own: plans for a budget of small segments then left a third of it."""
    assert held_by_steps(step(tensor_bytes), None, SegmentSettings()).reserved_peak == held_bytes
