"""Several forward passes before their backward passes: counted, and said where plans reckon with one."""

import logging

import pytest
import torch

from runtime.recompute.course import LAST, Event, Happened
from runtime.recompute.footprint import mark_of
from runtime.recompute.passes import passes_at_once
from tests.accelerators import prepared
from tests.runtime.recompute.test_plan import LOOPS, budget_of, plain
from tests.runtime.recompute.training import QUICK, trained

__all__ = ["QUICK"]


def marks(*told: tuple[int, bool]) -> list[Event]:
    return [(-1, Happened.MARK, mark_of(call, backward), 0, 0) for call, backward in told]


def test_calls_of_a_block_count_until_their_backward_pass() -> None:
    ordinary = marks((0, False), (1, False), (1, True), (0, True))
    assert passes_at_once(ordinary, [0, 1]) == 1
    twice = marks((0, False), (1, False), (2, False), (3, False), (3, True), (2, True), (1, True), (0, True))
    assert passes_at_once([*twice, (-1, Happened.MARK, LAST, 0, 0)], [0, 1, 0, 1]) == 2
    one_after_the_other = marks((0, False), (0, True), (1, False), (1, True))
    assert passes_at_once(one_after_the_other, [0, 0]) == 1
    assert passes_at_once(marks((0, False), (1, False), (1, True)), [0, 0]) == 1, "a loss that nobody uses"
    assert passes_at_once([], []) == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("loop", "solver", "told"), [
    ("two passes at once", "greedy-joint", True),
    ("two passes at once", "heu", False),
    ("accumulation", "greedy-joint", False),
])  # fmt: skip
def test_plans_of_the_whole_step_say_that_they_reckon_with_one(
    loop: str, solver: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    device: torch.device = prepared("sim")
    with caplog.at_level(logging.WARNING, "bayplan.recompute"):
        trained(device, "gpt", loop=LOOPS[loop], budget=budget_of(plain("gpt"), 1.5), solver=solver, around=True)
    assert told == ("2 forward passes of a block come before its backward pass" in caplog.text)
