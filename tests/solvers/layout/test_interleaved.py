"""The interleaved layout: ProTrain's four numbers as a plan."""

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.ir import InvalidInput
from solvers.layout.interleaved import interleaved, interleaved_plan, most_swapped
from solvers.layout.make import Rank, problem_from_shape


def letters(blocks: int, interval: int, swap: int, checkpoint: int) -> str:
    return "".join(policy[0] for policy in interleaved(blocks, interval, swap, checkpoint))


def test_the_layout_of_figure_2() -> None:
    """Eight blocks, interval 3: 1 and 4 swap, 2, 3, 5 and 6 checkpoint, 7 and 8 keep."""
    assert letters(8, 3, 2, 4) == "sccscckk"


def test_swapped_blocks_stand_an_interval_apart_and_checkpoints_fill_what_is_left_from_the_front() -> None:
    assert letters(6, 1, 2, 3) == "ssccck"
    assert letters(7, 3, 3, 0) == "skkskks"
    assert letters(7, 3, 0, 7) == "ccccccc"
    assert letters(5, 2, 3, 2) == "scscs"
    assert letters(0, 1, 0, 0) == ""


@pytest.mark.parametrize(("blocks", "interval"), [(8, 3), (7, 3), (1, 5), (0, 2), (5, 1)])
def test_no_more_blocks_can_be_swapped_than_stand_an_interval_apart(blocks: int, interval: int) -> None:
    most = most_swapped(blocks, interval)
    assert letters(blocks, interval, most, 0).count("s") == most
    with pytest.raises(InvalidInput, match=f"swap is {most + 1}"):
        interleaved(blocks, interval, most + 1, 0)
    with pytest.raises(InvalidInput, match="checkpoint is"):
        interleaved(blocks, interval, most, blocks - most + 1)


def test_embedding_and_head_are_not_laid_out() -> None:
    problem = problem_from_shape(read_shape("gpt2-1b"), read_hardware("protrain-3090"), Rank(ranks=4), batch=64)
    plan = interleaved_plan(problem, 2, 3, 2, 24)
    assert plan.persistent == (0, 1) and plan.buffers == 3
    assert plan.policies[0] == plan.policies[-1] == "keep"
    assert plan.policies[1:-1] == interleaved(32, problem.interval, 2, 24)
    with pytest.raises(InvalidInput, match=r"persist is 14, but there are 0…13 chunks"):
        interleaved_plan(problem, 14, 0, 0, 0)
