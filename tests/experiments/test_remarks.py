"""What is said of a plan that trained to the end: nothing, or where it broke its promise and whose fault that is."""

from dataclasses import replace

import torch

from experiments.execution import Execution
from experiments.remarks import remarks

MIB = 2**20
WHOLE = Execution(
    losses=torch.tensor([3.0, 2.0]), parameters=(torch.ones(2),), gradients=(torch.ones(2),), peak_bytes=8 * MIB
)


def never() -> Execution:
    raise AssertionError("a second run is for programs whose bits differ")


def test_a_plan_that_kept_its_word_is_not_talked_about() -> None:
    assert remarks(replace(WHOLE, peak_bytes=4 * MIB), WHOLE, 5 * MIB, 8 * MIB, never) is None


def test_a_budget_that_asks_for_nothing_and_a_peak_beyond_it_are_told() -> None:
    assert remarks(WHOLE, WHOLE, 9 * MIB, 8 * MIB, never) == (
        "the budget of 9437184 bytes (9.00 MiB) is not below the peak of 8388608 bytes (8.00 MiB), so nothing has to "
        "leave: give less"
    )
    said = remarks(WHOLE, WHOLE, 7 * MIB, 8 * MIB, never)
    assert said == "its peak of 8388608 bytes (8.00 MiB) is above the budget of 7340032 bytes (7.00 MiB)"


def test_a_departure_comes_first() -> None:
    said = remarks(replace(WHOLE, departure="not as planned"), WHOLE, 9 * MIB, 8 * MIB, never)
    assert said is not None and said.startswith("not as planned; the budget of")


def test_a_plan_that_changes_bits_is_told_from_a_program_that_does_not_repeat() -> None:
    other = replace(WHOLE, losses=torch.tensor([3.0, 2.5]))
    said = remarks(other, WHOLE, 8 * MIB - 1, 8 * MIB, lambda: WHOLE)
    assert said is not None
    assert said.endswith(
        "losses differ from step 2 on, though a second run with unlimited memory is equal to the first"
    )
    again = replace(WHOLE, losses=torch.tensor([2.0, 2.5]))
    said = remarks(other, WHOLE, 8 * MIB - 1, 8 * MIB, lambda: again)
    assert said is not None and "losses differ from step 1 on between two runs with unlimited memory too" in said


def test_parameters_and_gradients_are_looked_at_too() -> None:
    small = replace(WHOLE, peak_bytes=1)
    others = {
        "parameters": replace(small, parameters=(torch.zeros(2),)),
        "gradients": replace(small, gradients=(torch.zeros(2),)),
    }
    for name, other in others.items():
        said = remarks(other, WHOLE, MIB, 8 * MIB, lambda: WHOLE)
        assert said is not None and said.startswith(f"{name} differ, though")
    shorter = replace(WHOLE, losses=torch.tensor([3.0]), peak_bytes=1)
    said = remarks(shorter, WHOLE, MIB, 8 * MIB, lambda: WHOLE)
    assert said is not None and said.startswith("1 losses are there, not 2")
