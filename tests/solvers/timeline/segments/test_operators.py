"""The least that any budget must be: an operator's arguments and what it takes, in whole segments."""

import msgspec
import pytest

from solvers.ir.errors import InvalidProblem
from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.ir.requests import StepRequests
from solvers.timeline.segments import OperatorNeed, most_needed

MIB = 1 << 20


def graph(*, expandable: bool) -> OpGraph:
    """Op 0 makes 12 MiB; op 1 uses them twice and 3 KiB, and takes 30 and 5, gives the 30 back, and takes 25."""
    ops = (
        Op(name="make", phase="forward", time_us=1, outputs=(0,)),
        Op(name="use", phase="forward", time_us=1, inputs=(0, 1, 0), outputs=(2,)),
    )
    sizes = (12 * MIB, 3072, 25 * MIB)
    tensors = tuple(Tensor(id=number, bytes=size, kind="activation") for number, size in enumerate(sizes))
    events = (
        (0, 12 * MIB, 0, 0),
        (1, 30 * MIB, 0, 1),
        (2, 5 * MIB, 0, 1),
        (1, 0, 0, 1),
        (3, 25 * MIB, 0, 1),
        (4, 400 * MIB, 0, -3),  # after the last operator: nobody's
        (0, 0, 0, -3),
    )
    requests = StepRequests(expandable=expandable, events=events)
    return OpGraph(name="two", ops=ops, tensors=tensors, memory_bytes=(0, 0), requests=requests)


@pytest.mark.parametrize(("expandable", "large"), [(False, 46), (True, 60)])
def test_an_operator_needs_its_arguments_once_and_the_most_of_its_own_blocks(expandable: bool, large: int) -> None:
    """12 + 29 + 4, as 1 MiB may not have been cut off: 46 MiB in segments, 60 in pages of 20; 2 for what is small."""
    assert most_needed(graph(expandable=expandable)) == OperatorNeed((large + 2) * MIB, 1)


def test_a_profile_in_exact_bytes_tells_no_requests() -> None:
    exact = msgspec.structs.replace(graph(expandable=False), requests=msgspec.UNSET)
    with pytest.raises(InvalidProblem, match="tells no requests: profile the step where memory comes in segments"):
        most_needed(exact)
