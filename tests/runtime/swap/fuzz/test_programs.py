"""The programs themselves: drawn alike from a seed, varied, and the same on the simulated device as on a CPU."""

import pytest
import torch

from tests.runtime.swap.fuzz.program import CHANGES, ITERATIONS, OPTIMIZERS, PARTS, Program, Turn, draw_program
from tests.runtime.swap.fuzz.training import Loop
from tests.soaking import some

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # checkpoints in validation
CPU = torch.device("cpu")
"""A program is compared with itself here; what swapping does to it is another test's question."""


def test_a_seed_is_a_program_and_its_text_builds_it_again() -> None:
    for seed in range(20):
        program = draw_program(seed)
        assert draw_program(seed) == program
        assert eval(repr(program), {"Program": Program, "Turn": Turn}) == program
        assert len(program.turns) == ITERATIONS


def test_a_hundred_seeds_draw_everything_there_is() -> None:
    programs = [draw_program(seed) for seed in range(100)]
    assert {part for program in programs for part in program.parts} == set(PARTS)
    assert {program.optimizer for program in programs} == set(OPTIMIZERS)
    assert {change for program in programs for turn in program.turns for change in turn.changes} == set(CHANGES)
    sizes = [{(turn.rows, turn.length) for turn in program.turns} for program in programs]
    assert sum(len(found) > 1 for found in sizes) > 50  # batches of several sizes in one program


@pytest.mark.parametrize("seed", some(range(24)))
def test_the_simulated_device_computes_what_a_cpu_does(device: torch.device, seed: int) -> None:
    program = draw_program(seed)
    plain = Loop(program, device).run()
    assert Loop(program, device).run().difference(plain) is None
    if not {"recurrent", "lstm"} & set(
        program.parts
    ):  # PyTorch multiplies a recurrent layer's inputs in another order on a CPU
        assert Loop(program, CPU).run().difference(plain) is None
