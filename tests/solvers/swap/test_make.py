"""Which tensors may leave, and over which link."""

import pytest

from solvers.ir import Device, Hardware, InvalidProblem, Link, Op, OpGraph, Tensor
from solvers.swap import make_swap_problem

MIB = 1 << 20


def graph() -> OpGraph:
    """Two forward ops, two backward ops, an optimizer op; `x` waits from op 1 to op 2, `y` from op 0 to op 3."""
    return OpGraph(
        name="story",
        ops=(
            Op(name="linear", phase="forward", time_us=5, inputs=(1,), outputs=(2,)),
            Op(name="gelu", phase="forward", time_us=0, inputs=(2,), outputs=(3,)),
            Op(name="gelu_backward", phase="backward", time_us=7, inputs=(3,), outputs=(4,)),
            Op(name="linear_backward", phase="backward", time_us=9, inputs=(2, 4), outputs=(5,)),
            Op(name="adam", phase="optimizer", time_us=3, inputs=(1, 5)),
        ),
        tensors=(
            Tensor(id=1, bytes=MIB, uses=(0, 4), kind="parameter"),
            Tensor(id=2, bytes=MIB, born=0, uses=(1, 3), saved=True, kind="activation"),
            Tensor(id=3, bytes=MIB, born=1, uses=(2,), saved=True, kind="activation"),
            Tensor(id=4, bytes=MIB, born=2, uses=(3,), kind="activation"),
            Tensor(id=5, bytes=MIB, born=3, uses=(4,), kind="gradient"),
            Tensor(id=6, bytes=64, born=0, uses=(3,), saved=True, kind="activation"),
        ),
        memory_bytes=(2 * MIB, 3 * MIB, 4 * MIB, 4 * MIB, 2 * MIB),
    )


def hardware(duplex: str = "full") -> Hardware:
    return Hardware(
        name="story",
        devices=(Device(name="0", memory_bytes=3 * MIB),),
        links=(Link(a="0", b="host", bytes_per_s=10**9, latency_us=2.5, duplex=duplex),),  # type: ignore[arg-type]
    )


def test_only_activations_that_wait_between_forward_and_backward_may_leave() -> None:
    problem = make_swap_problem(graph(), hardware())
    # Tensor 3 is read by the very next op, 4 and 5 live in the backward pass only, 6 is too small, 1 is a parameter.
    assert [(t.id, t.last_forward_use, t.first_backward_use) for t in problem.tensors] == [(2, 1, 3)]
    assert problem.budget_bytes == 3 * MIB
    assert [op.time_us for op in problem.ops] == [5, 1, 7, 9, 3]
    assert (problem.link.out_bytes_per_s, problem.link.in_bytes_per_s, problem.link.latency_us) == (10**9, 10**9, 3)


def test_two_simplex_links_give_each_direction_its_rate() -> None:
    directed = Hardware(
        name="measured",
        devices=(Device(name="0", memory_bytes=MIB),),
        links=(
            Link(a="0", b="host", bytes_per_s=7, duplex="simplex"),
            Link(a="host", b="0", bytes_per_s=9, duplex="simplex"),
        ),
    )
    link = make_swap_problem(graph(), directed).link
    assert (link.out_bytes_per_s, link.in_bytes_per_s) == (7, 9)


def test_what_the_kind_cannot_state_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="half duplex"):
        make_swap_problem(graph(), hardware("half"))
    with pytest.raises(InvalidProblem, match="no link"):
        make_swap_problem(graph(), Hardware(name="alone", devices=(Device(name="0", memory_bytes=1),)))
