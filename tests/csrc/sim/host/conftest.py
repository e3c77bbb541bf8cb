"""Machines of one device and of two."""

from tests.csrc.sim.devices.conftest import machine

__all__ = ["machine"]
