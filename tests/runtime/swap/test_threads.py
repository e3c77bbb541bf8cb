"""Another thread computes on the device while sessions start, pause, resume and close: nobody runs out of memory."""

import time

import pytest
import torch

from experiments.models.gpt import GptShape
from runtime.device import CachingAllocator, use_sim
from runtime.device.native import load
from runtime.swap.session import Session
from runtime.swap.stages import StageSettings
from tests.runtime.execute.test_threads import meanwhile
from tests.runtime.swap.training import SHORT, Program, Trainer, run, steadily

SHAPE = GptShape(layers=2, width=32, heads=2, context=64, batch=4, seed=3)
WIDE = GptShape(layers=4, width=128, heads=4, context=128, batch=16, seed=3)
STAGES = StageSettings(0, 2)
LOADING = 400_000
"""Bytes: ample for what the other threads of these tests hold."""


def pausing(steps: int) -> Program:
    """Steps of two lengths; the session pauses after each."""

    def program(trainer: Trainer, following: Session | None) -> list[torch.Tensor]:
        losses = []
        for number in range(steps):
            losses.append(trainer.step(tokens=SHORT if number % 2 else None))
            if following is not None:
                following.pause()
                following.resume()
        return losses

    return program


def test_a_busy_data_loader_s_thread_costs_no_memory_when_sessions_come_and_go(device: torch.device) -> None:
    """It is inside an operator, or waits to be let in, at some of these moments."""
    program = pausing(6)
    free = run(program, device, shape=SHAPE)
    budget = free.peak_bytes * 3 // 4 + LOADING
    weight = torch.ones(64, 64, device=device)
    passive = 0

    def scale() -> None:
        weight.mul_(1.0)

    with meanwhile(scale), meanwhile(scale), meanwhile(scale):
        for _ in range(4):
            limited = run(program, device, budget, SHAPE, stages=STAGES)
            assert limited.equals(free)
            passive += sum(iteration.counts.passive for iteration in limited.iterations)
    assert passive > 0


@pytest.mark.parametrize(("expandable", "budget_mib", "pause_s"), [(False, 60, 0.0002), (True, 64, 0.0)])
def test_threads_that_share_an_operator_s_work_are_no_threads_beside_it(
    device: torch.device, expandable: bool, budget_mib: int, pause_s: float
) -> None:
    """Attention's backward pass allocates in threads of OpenMP's, while loaders' threads compute all the time.

    Whoever is inside an operator when memory is asked for keeps everything from leaving, so room is made before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    use_sim(allocator=CachingAllocator(expandable_segments=expandable))
    try:
        run(steadily(1), device, shape=WIDE)  # a process's first work in two threads may have other last bits
        free = run(steadily(4), device, shape=WIDE)
        weight, wide = torch.ones(64, 64, device=device), torch.ones(256, 256, device=device)

        def scale() -> None:
            weight.mul_(1.0)
            time.sleep(pause_s)

        def multiply() -> None:
            (wide @ wide).sum()
            time.sleep(pause_s)

        with meanwhile(scale), meanwhile(multiply):
            limited = run(steadily(4), device, budget_mib << 20, WIDE, stages=STAGES)
        assert limited.equals(free)
        assert limited.report is not None and limited.report.within_budget
        assert sum(iteration.counts.passive for iteration in limited.iterations) > 0
    finally:
        torch.set_num_threads(threads)
        use_sim()


def test_the_simulated_device_answers_while_other_threads_copy(device: torch.device) -> None:
    """Who copies has the device's lock and may need Python's; who asks has Python's and needs the device's."""
    native = load("runtime._sim")
    capacity = native.capacity()

    def copy() -> None:
        assert torch.ones(64, 64).to(device).is_contiguous()

    with meanwhile(copy), meanwhile(copy):
        for _ in range(20_000):
            native.set_capacity(capacity)
            assert native.capacity() == capacity
            assert native.races() == []
            assert native.counters()["kernels"] >= 0
            assert native.host_ns() >= 0
