"""Analytic times of all configurations at once: those of one after the other, and how they relate to the lanes."""

import msgspec
import numpy as np
from hypothesis import given, settings

from solvers.ir import LayoutProblem
from solvers.layout.analytic import Activations, Analytic
from solvers.layout.evaluate import evaluate, instance
from solvers.layout.layouts import all_layouts
from solvers.layout.search import Space
from tests.solvers.layout import naive_search
from tests.solvers.layout.brute_force import random_problem
from tests.strategies import layout_problems


@settings(max_examples=60)
@given(layout_problems(max_blocks=7, max_chunks=5))
def test_times_are_those_of_one_configuration_after_the_other(problem: LayoutProblem) -> None:
    count = len(problem.chunks)
    layouts = all_layouts(problem)
    analytic = Analytic(instance(problem), layouts, np.arange(count + 1))
    rows, columns = np.nonzero(layouts.valid)
    cells = np.flatnonzero(layouts.valid)
    least = analytic.least_us(cells)
    for persist in range(count + 1):
        for buffers in range(count - persist + 1):
            found = analytic.times_us(np.full(len(cells), persist), np.full(len(cells), buffers), cells)
            swaps, checkpoints = layouts.swap[rows].tolist(), layouts.checkpoint[columns].tolist()
            for time, swap, checkpoint in zip(found.tolist(), swaps, checkpoints, strict=True):
                assert time == naive_search.time_us(problem, (persist, buffers, swap, checkpoint))
            assert (least[persist] <= found).all()


def test_what_no_block_hides_of_a_late_swap_takes_its_time() -> None:
    """Three blocks, interval 2: of the last block's 8 and 6 us nothing is hidden, of the second one's a half."""
    drawn = random_problem(0)
    block = msgspec.structs.replace(drawn.blocks[0], choice=True, swap_out_us=8, swap_in_us=6, chunks=())
    first = msgspec.structs.replace(block, chunks=tuple(range(len(drawn.chunks))))
    three = msgspec.structs.replace(drawn, interval=2, blocks=(first, block, block))
    moves = Activations.of(three, all_layouts(three).swap)
    assert (moves.out.tolist(), moves.into.tolist(), moves.alone.tolist()) == ([0, 4, 4], [0, 3, 3], [0, 0, 14])
    without_first = msgspec.structs.replace(first, choice=False)
    second = msgspec.structs.replace(three, blocks=(without_first, block, block))
    moves = Activations.of(second, all_layouts(second).swap)
    assert (moves.out.tolist(), moves.into.tolist(), moves.alone.tolist()) == ([0, 0, 4], [0, 0, 3], [0, 7])


def test_it_agrees_with_the_lanes_where_nothing_contends() -> None:
    """With a thousand times the compute, only the ends of the step have traffic that is not hidden."""
    compared = 0
    for seed in range(40):
        drawn = random_problem(seed)
        blocks = [
            msgspec.structs.replace(b, forward_us=b.forward_us * 1000, backward_us=b.backward_us * 1000)
            for b in drawn.blocks
        ]
        problem = msgspec.structs.replace(drawn, blocks=tuple(blocks))
        given = instance(problem)
        for one in Space(given).best(9):
            end_us = evaluate(given, one.plan(problem)).end_us
            assert abs(one.analytic_us - end_us) < 0.03 * end_us
            compared += 1
    assert compared > 100


def test_the_layouts_order_is_that_of_figure_2() -> None:
    """Eight blocks, interval 3: swapping two and checkpointing four reaches to the sixth block, past both swapped."""
    drawn = random_problem(0)
    block = msgspec.structs.replace(drawn.blocks[0], choice=True, chunks=())
    first = msgspec.structs.replace(block, chunks=tuple(range(len(drawn.chunks))))
    layouts = all_layouts(msgspec.structs.replace(drawn, interval=3, blocks=(first, *[block] * 7)))
    assert layouts.swap.tolist() == [0, 1, 2, 3]
    assert (layouts.again_end[2, 4], layouts.again_swapped[2, 4]) == (6, 2)
    assert (layouts.again_end[2, 2], layouts.again_swapped[2, 2]) == (3, 1)
    assert (layouts.again_end[0, 8], layouts.again_swapped[0, 8]) == (8, 0)
    assert layouts.moving_end.tolist() == [0, 4, 7, 8]
    assert not layouts.valid[1, 8]
