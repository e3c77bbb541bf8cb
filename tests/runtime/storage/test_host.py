"""A limit of page-locked memory holds while it stands, whatever was page-locked before."""

import pytest
import torch

from runtime.device.native import core
from runtime.storage.host import host_limit
from runtime.swap import release_host_memory, swap_out

MIB = 1 << 20


def test_the_host_limit_ends_with_its_context(device: torch.device) -> None:
    tensor = torch.ones(MIB // 4).to(device)
    with host_limit(MIB // 2), pytest.raises(RuntimeError, match="host_limit_bytes=524288"):
        swap_out(tensor)
    swap_out(tensor)
    assert tensor.sum() == MIB // 4
    del tensor
    release_host_memory()


def test_idle_memory_beyond_the_limit_is_given_back(device: torch.device) -> None:
    """Else it would be used again, though more than the limit."""
    tensor = torch.ones(MIB // 4).to(device)
    swap_out(tensor)
    assert tensor.sum() == MIB // 4
    assert core.host_stats().held_bytes >= MIB
    with host_limit(2 * MIB):
        assert core.host_stats().held_bytes >= MIB
    with host_limit(MIB // 2):
        assert core.host_stats().held_bytes == 0
        with pytest.raises(RuntimeError, match="host_limit_bytes=524288"):
            swap_out(tensor)


def test_the_peak_counts_from_what_is_held_when_it_is_asked_to(device: torch.device) -> None:
    tensor = torch.ones(MIB // 4).to(device)
    swap_out(tensor)
    assert tensor.sum() == MIB // 4
    core.reset_host_peak()
    assert core.host_stats().peak_held_bytes == core.host_stats().held_bytes >= MIB
    release_host_memory()
    assert core.host_stats().peak_held_bytes >= MIB
    core.reset_host_peak(device)
    assert core.host_stats(device).peak_held_bytes == 0
