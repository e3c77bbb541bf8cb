"""What tests that run on each device share."""

from collections.abc import Iterator

import pytest
import torch

from tests.accelerators import prepared, repeatable


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The accelerator that the test's parameter names, by default the simulated one."""
    return prepared(getattr(request, "param", "sim"))


@pytest.fixture
def repeatable_kernels() -> Iterator[None]:
    """Else two runs on CUDA need not agree."""
    with repeatable():
        yield
