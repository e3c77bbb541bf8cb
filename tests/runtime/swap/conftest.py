"""The same devices as for the tests of storages and of profiles."""

from tests.runtime.profile.memory.conftest import sim
from tests.runtime.storage.conftest import device

__all__ = ["device", "sim"]
