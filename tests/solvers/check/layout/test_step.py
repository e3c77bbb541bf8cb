"""The parts of rows: which chunks a pass is the first to ask for, whose gradients wait, and in what order they go."""

from msgspec.structs import replace

from solvers.check.layout.step import LayoutStep, after, plus
from tests.solvers.check.layout.test_judge import FREE, problem

TIED = problem((0,), (1,), (1, 2), (0, 2), chunk=replace(FREE, load_us=3, gather_us=2, reduce_us=5, allreduce_us=7))
"""Chunk 0 is used first and last, 1 by blocks 1 and 2, 2 by blocks 2 and 3."""


def test_each_half_asks_for_a_chunk_first_once() -> None:
    step = LayoutStep(TIED)
    assert [step.fresh(e) for e in range(8)] == [[0], [1], [2], [], [0, 2], [1], [], []]
    assert [step.block(e) for e in range(8)] == [0, 1, 2, 3, 3, 2, 1, 0]


def test_gradients_wait_from_the_last_user_to_the_first() -> None:
    step = LayoutStep(TIED)
    assert step.order == [2, 1, 0]
    assert [sorted(step.pending(k)) for k in range(4)] == [[0], [0, 1], [0, 1, 2], [0, 2]]
    assert step.last_reduction() == 7
    frozen = replace(
        TIED, chunks=(replace(TIED.chunks[0], trainable=False, reduce_us=0, allreduce_us=0), *TIED.chunks[1:])
    )
    assert LayoutStep(frozen).last_reduction() == 6  # backward of block 1, which is not the last


def test_amounts_depend_on_what_persists_and_what_is_found() -> None:
    step = LayoutStep(TIED)
    assert step.missing(0, [0], "load_us") == ([("persistent/0", -3)], 3)
    assert step.missing(4, [0], "load_us") == ([("persistent/0", -3), ("found/0", -3)], 3)
    assert step.reductions(6) == ([("persistent/1", 2), ("persistent/0", 2)], 10)
    row = after("end/1", "end/0", plus(step.work(6), ([("checkpoint/1", 1)], 2)))
    assert (row.lower, row.upper) == (8 + 2, None)
    assert row.weights == {"end/1": 1, "end/0": -1, "checkpoint/1": -5}
