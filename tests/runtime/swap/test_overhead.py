"""The guard's cost is measured, and the guard is off afterwards."""

import torch

from runtime.device.native import core
from runtime.swap.overhead import guard_ns_per_record


def test_the_guard_s_cost_is_measured_and_it_is_off_afterwards(device: torch.device) -> None:
    assert guard_ns_per_record(500) < 100_000
    assert not core.swap_guard_is_on()
