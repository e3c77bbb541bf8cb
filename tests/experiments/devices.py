"""A fixture of experiments with ranks, for the `conftest.py` of their folders: one device with bytes is left behind."""

import gc
from collections.abc import Iterator

import pytest
import torch

from runtime.device import use_sim
from runtime.device.native import why_missing


@pytest.fixture(autouse=True)
def one_device_with_bytes_again() -> Iterator[None]:
    """Whatever a test did, the next one begins as in a fresh process; sums are on one thread, as everywhere here."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    gc.collect()
    use_sim()
