"""The same device as for the tests of storages, left as clean."""

from tests.runtime.storage.conftest import device

__all__ = ["device"]
