"""The same devices as for the tests of storages and of profiles; and nothing waits under an allocator's lock."""

from collections.abc import Iterator

import pytest

from tests.forbidden_waits import none_forbidden
from tests.runtime.profile.memory.conftest import sim
from tests.runtime.storage.conftest import device

__all__ = ["device", "sim"]


@pytest.fixture(autouse=True)
def nothing_waits_under_a_lock() -> Iterator[None]:
    """Whatever a test of sessions does."""
    with none_forbidden():
        yield
