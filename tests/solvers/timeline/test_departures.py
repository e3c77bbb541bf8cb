"""How long what leaves may wait before memory is short without it."""

import numpy as np
import pytest

from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.departures import latest_departures

OP_US = 10


def graph_of(memory: list[int], sizes: list[int]) -> OpGraph:
    """Ops of equal length; every tensor is there before the step and used at its end."""
    ops = tuple(Op(name="op", phase="forward", time_us=OP_US) for _ in memory)
    last = len(memory) - 1
    tensors = tuple(Tensor(id=place, bytes=size, uses=(last,), kind="activation") for place, size in enumerate(sizes))
    return OpGraph(name="made up", ops=ops, tensors=tensors, memory_bytes=tuple(memory))


def schedule_of(swaps: list[tuple[int, int, int]]) -> Schedule:
    """Of each tensor the op after which it leaves, and those before which its block is free and it returns."""
    actions: list[Action] = []
    for name, (left, gone, back) in enumerate(swaps):
        for lane, do, op in (("0.out", "swap_out", left), ("0.compute", "release", gone), ("0.in", "swap_in", back)):
            actions.append(Action(id=len(actions), lane=lane, do=do, op=op, data=(name,)))  # type: ignore[arg-type]
    return Schedule(lanes=("0.compute", "0.out", "0.in"), actions=tuple(actions))


def copy_us(size: int) -> float:
    """A copy of a byte takes one op's time."""
    return size * OP_US


def test_a_copy_begins_so_that_it_has_ended_where_memory_is_short() -> None:
    graph = graph_of([5, 5, 5, 5, 5, 9, 9, 5, 5, 5], [4])
    assert latest_departures(graph, schedule_of([(0, 2, 9)]), 5, copy_us) == {0: 1}
    assert latest_departures(graph, schedule_of([(0, 2, 9)]), 8, copy_us) == {0: 1}, "short all the same"


def test_what_nobody_needs_the_memory_of_waits_until_it_would_return() -> None:
    graph = graph_of([5] * 10, [2])
    assert latest_departures(graph, schedule_of([(0, 2, 8)]), 5, copy_us) == {0: 6}


def test_copies_wait_for_those_behind_them() -> None:
    """Both have to be gone before op 7, the first one alone before op 6; each copy takes two ops."""
    graph = graph_of([4, 4, 4, 4, 4, 4, 6, 8, 4, 4], [2, 2])
    swaps = [(0, 3, 9), (1, 5, 9)]
    assert latest_departures(graph, schedule_of(swaps), 4, copy_us) == {0: 3, 1: 5}


def test_none_may_leave_before_its_last_use() -> None:
    graph = graph_of([4, 4, 4, 9, 4, 4], [5])
    assert latest_departures(graph, schedule_of([(2, 3, 5)]), 4, copy_us) == {0: 3}


@pytest.mark.parametrize("seed", range(20))
def test_memory_suffices_where_each_leaves_as_late_as_it_may(seed: int) -> None:
    """On the lane one after the other, from the latest ops on: wherever the schedule keeps the budget, this does."""
    draw = np.random.default_rng(seed)
    count = 40
    sizes = [int(size) for size in draw.integers(1, 4, 6)]
    swaps, free = [], 0
    for size in sizes:
        left = int(draw.integers(free, free + 2))
        free = left + 1 + size  # the lane, as the schedule has it
        swaps.append((left, free, count - 1))
    memory = draw.integers(5, 20, count)
    planned = memory.copy()
    for size, (_, gone, back) in zip(sizes, swaps, strict=True):
        planned[gone:back] -= size
    budget = int(planned[5:].max())
    kept = planned <= budget
    latest = latest_departures(graph_of([int(m) for m in memory], sizes), schedule_of(swaps), budget, copy_us)
    executed, lane = memory.copy(), 0.0
    for name, (size, (left, _, back)) in enumerate(zip(sizes, swaps, strict=True)):
        lane = max(lane, latest[name]) + size
        assert latest[name] > left
        executed[int(np.ceil(lane)) : back] -= size
    assert (executed[kept] <= budget).all()
