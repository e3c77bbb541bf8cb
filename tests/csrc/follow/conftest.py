"""The same device as for the tests of storages."""

from tests.runtime.storage.conftest import device

__all__ = ["device"]
