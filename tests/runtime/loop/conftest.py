"""The same device as for the tests of storages, left as clean; and PyTorch's hooks as they were."""

from collections.abc import Iterator

import pytest
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from tests.runtime.storage.conftest import device

__all__ = ["device"]


@pytest.fixture
def nothing_stays_hooked() -> Iterator[None]:
    """Whatever a test does, PyTorch is as it was."""
    original = (GradScaler.step, GradScaler.update)
    before = (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks))
    yield
    assert (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)) == before
    assert (GradScaler.step, GradScaler.update) == original
