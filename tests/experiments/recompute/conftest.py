"""Tests of ranks leave one device with bytes behind."""

from tests.experiments.devices import one_device_with_bytes_again

__all__ = ["one_device_with_bytes_again"]
