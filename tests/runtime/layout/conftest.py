"""A small simulated GPU whose host is looked at, too; fresh for each test."""

import gc
from collections.abc import Iterator

import pytest
import torch

from experiments.hardware import read_hardware
from runtime.device import SimDevice, use_sim
from runtime.device.settling import settled
from tests.accelerators import prepare_sim

REFUSED = prepare_sim()  # while tests are collected: before any backward pass


@pytest.fixture
def sim() -> Iterator[SimDevice]:
    if REFUSED is not None:
        pytest.skip(REFUSED)
    torch.manual_seed(0)
    gc.collect()
    device = use_sim(read_hardware("sim-small"), races="raise")
    settled(device.bytes_in_use)  # a thread of the test before may be dropping what it had yet
    with device.checking_host():
        yield device
    device.close()
