"""What no tensor owns, by what the driver says; without a GPU the driver's words are made up."""

import pytest
import torch

from runtime.device import outside_bytes, use_sim
from runtime.device.native import why_missing

GIB = 1 << 30


@pytest.mark.parametrize(("free", "reserved", "outside"), [(60, 18, 2), (79, 1, 0), (80, 1, 0)])
def test_it_is_what_is_taken_beside_the_allocator(
    monkeypatch: pytest.MonkeyPatch, free: int, reserved: int, outside: int
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (free * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: reserved * GIB)
    assert outside_bytes(torch.device("cuda", 1)) == outside * GIB


@pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
def test_the_simulated_device_has_no_driver() -> None:
    assert outside_bytes(use_sim().device) is None
