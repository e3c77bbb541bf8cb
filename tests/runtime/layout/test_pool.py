"""Buffers come from a pool of their own where a device has such."""

from contextlib import nullcontext

import pytest
import torch

from runtime.device import SimDevice
from runtime.layout.pool import private_room


def test_the_simulated_device_needs_none(sim: SimDevice) -> None:
    assert private_room(sim.device) is nullcontext


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a pool of CUDA's wants a GPU")
def test_bytes_that_come_again_lie_in_the_pool() -> None:
    device = torch.device("cuda", 0)
    room = private_room(device)
    flat = torch.zeros(0, dtype=torch.uint8, device=device)
    places = set[int]()
    for _ in range(3):
        with room():
            flat.untyped_storage().resize_(32 << 20)
        places.add(flat.untyped_storage().data_ptr())
        flat.untyped_storage().resize_(0)
        other = torch.empty(24 << 20, dtype=torch.uint8, device=device)
        assert other.data_ptr() not in places
        del other
    assert len(places) == 1
