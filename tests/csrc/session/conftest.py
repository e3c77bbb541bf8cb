"""The engine's tests run on the same device, and leave it as clean, as those of the executor above it."""

from tests.runtime.storage.conftest import device

__all__ = ["device"]
