"""What a program needs: its peak is the allocator's, and what it needs at once is less."""

import gc

import pytest
import torch

from runtime.device import memory_stats, use_sim
from tests.runtime.swap.fuzz.budgets import reference_run
from tests.runtime.swap.fuzz.program import Program, Turn, draw_program
from tests.runtime.swap.fuzz.training import Loop

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # checkpoints in validation


@pytest.mark.parametrize("seed", range(8))
def test_the_peak_is_the_allocators(device: torch.device, seed: int) -> None:
    program = draw_program(seed)
    trace, need = reference_run(program, device)
    assert len(trace.turns) == len(program.turns)
    use_sim(races="raise")
    loop = Loop(program, device)
    gc.collect()
    gc.disable()  # when cycles are collected depends on what the process did before, and on its other threads
    try:
        loop.run()
    finally:
        gc.enable()
    peak = memory_stats(device).peak_bytes
    assert need.floor_bytes < need.peak_bytes <= peak
    if not any("raise in backward" in turn.changes for turn in program.turns):  # its graph may live a little longer
        assert need.peak_bytes == peak


def test_a_deep_program_could_do_with_much_less(device: torch.device) -> None:
    deep = Program(seed=1, parts=("linear", "gelu") * 8, turns=(Turn(8, 32),) * 3, width=32)
    _, need = reference_run(deep, device)
    assert need.floor_bytes < need.peak_bytes / 2  # only one layer at a time must be there
    shallow = Program(seed=1, parts=("gelu",), turns=(Turn(8, 32),) * 3, width=32)
    _, other = reference_run(shallow, device)
    assert other.floor_bytes < need.floor_bytes
