"""What the engine's table refuses: schedules of another graph, and waits for what the host has not issued yet."""

import pytest

from runtime.execute.program import host_need_bytes, swap_program
from solvers.ir.errors import InvalidProblem
from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.ir.schedule import Action, Schedule, parse_schedule

GRAPH = OpGraph(
    name="five ops",
    ops=(
        Op(name="aten::op0", phase="forward", time_us=1, inputs=("x",), outputs=("h",)),
        Op(name="aten::op1", phase="forward", time_us=1, inputs=("h",), outputs=("y",)),
        Op(name="aten::op2", phase="forward", time_us=1, inputs=("y",), outputs=("z",)),
        Op(name="aten::op3", phase="backward", time_us=1, inputs=("z",), outputs=("y",)),
        Op(name="aten::op4", phase="backward", time_us=1, inputs=("h", "y"), outputs=("x",)),
    ),
    tensors=(
        Tensor(id="x", bytes=100, uses=(0, 4)),
        Tensor(id="h", bytes=1000, born=0, uses=(0, 1, 4)),
        Tensor(id="y", bytes=50, born=1, uses=(1, 2, 3, 4)),
        Tensor(id="z", bytes=70, born=2, uses=(2, 3)),
        Tensor(id="mask", bytes=7, born=1, uses=(1, 4), inner=0),
    ),
    memory_bytes=(1, 1, 1, 1, 1),
)

GOOD = """lanes 0.compute 0.out 0.in
0 0.compute compute op=0
1 0.compute compute op=1
2 0.out swap_out op=1 data="h" bytes=1000 after=1
3 0.compute compute op=2
4 0.compute release op=3 data="h" bytes=1000 after=2
5 0.in swap_in op=3 data="h" bytes=1000 after=4
6 0.compute compute op=3
7 0.compute compute op=4 after=5"""


def edited(old: str, new: str) -> Schedule:
    assert old in GOOD
    return parse_schedule(GOOD.replace(old, new))


def test_a_good_schedule_is_accepted() -> None:
    swap_program(parse_schedule(GOOD), GRAPH)


def test_a_tensor_that_its_operator_keeps_to_itself_is_accepted() -> None:
    swap_program(parse_schedule(GOOD.replace('"h" bytes=1000', '"mask" bytes=7')), GRAPH)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "swap_out",
            "evict",
            "action 2 does evict, which the swap executor does not execute: give a schedule of compute",
        ),
        ('"h"', '"nobody"', "action 2 names tensor 'nobody', which the graph lacks"),
        ("compute op=2", "compute op=1", "computes 5 ops, not each of the graph's 5 once and in order"),
        (
            " op=1 data",
            " op=2 data",
            r"action 4 .* comes after|which does not touch it: swap it out after an op that does",
        ),
        ("release op=3", "release op=1", r"action 4 \(release at op 1\) comes after action 2 \(swap_out at op 1\)"),
        ("swap_in op=3", "swap_in op=2", r"action 5 \(swap_in at op 2\) comes after action 4 \(release at op 3\)"),
        ("compute op=3", "compute", "names no op: say where it stands|computes 5 ops"),
        (
            "swap_in op=3",
            "release op=3",
            "tensor 'h' goes through swap_out, release, release: let it go out, be released",
        ),
    ],
)
def test_a_schedule_that_cannot_be_executed_is_refused_in_a_sentence(old: str, new: str, sentence: str) -> None:
    with pytest.raises(InvalidProblem, match=sentence):
        swap_program(edited(old, new), GRAPH)


def test_the_host_holds_a_tensor_from_its_swap_out_to_its_use() -> None:
    assert host_need_bytes(parse_schedule(GOOD), GRAPH) == 1000
    two = parse_schedule(GOOD)
    more = (
        Action(id=8, lane="0.out", do="swap_out", op=2, data=("y",), bytes=50),
        Action(id=9, lane="0.in", do="swap_in", op=4, data=("y",), bytes=50),
    )
    assert host_need_bytes(Schedule(lanes=two.lanes, actions=(*two.actions, *more)), GRAPH) == 1050
    assert host_need_bytes(Schedule(lanes=two.lanes, actions=two.actions[:2]), GRAPH) == 0
