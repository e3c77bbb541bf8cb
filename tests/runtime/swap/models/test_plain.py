"""The programs train on the simulated accelerator to the bits of the CPU: so what swapping changes is swapping's."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from runtime.device import memory_stats, reset_peak_memory, use_sim
from runtime.device.settling import settled
from tests.runtime.swap.models.distributed import DISTRIBUTED, one_rank
from tests.runtime.swap.models.program import trained
from tests.runtime.swap.models.zoo import OTHERWISE_ON_CPU, ZOO
from tests.soaking import some

STEPS = 4
SOME = some(sorted(ZOO, key=lambda name: name.endswith("-sdpa")))
"""In CI one model with either attention, not all with one."""


def surroundings(name: str) -> AbstractContextManager[None]:
    return one_rank() if name in DISTRIBUTED else nullcontext()


@pytest.mark.parametrize("name", SOME)
def test_sim_trains_to_the_bits_of_the_cpu(name: str, device: torch.device) -> None:
    with surroundings(name):
        expected = trained(ZOO[name], torch.device("cpu") if name not in OTHERWISE_ON_CPU else device, STEPS)
        assert trained(ZOO[name], device, STEPS).differences(expected) == []
    assert use_sim().races() == []


@pytest.mark.parametrize("name", SOME)
def test_activations_outweigh_what_stays(name: str, device: torch.device) -> None:
    """Otherwise there would be little to swap."""
    with surroundings(name):
        program = ZOO[name](device)
        program.step().cpu()
        before = settled(lambda: memory_stats(device).allocated_bytes)
        reset_peak_memory(device)
        program.step().cpu()
        assert memory_stats(device).peak_bytes - before > 0.9 * before
