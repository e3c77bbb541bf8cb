"""Waits where there must be none: under the lock of a device's allocator."""

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.device.native import core, load, why_missing


def forbidden_waits() -> dict[str, int]:
    """By name, since the process began: what the engine counts, and what the simulated device sees by itself."""
    if why_missing("runtime._C") is not None or why_missing("runtime._sim") is not None:
        return {}
    engine, device = core.relief_counts(), load("runtime._sim")
    return {"waits_under_lock": engine["waits_under_lock"], "waits_in_callback": device.waits_in_callback()}


@contextmanager
def none_forbidden() -> Iterator[None]:
    """Fails if there are more afterwards."""
    before = forbidden_waits()
    yield
    assert forbidden_waits() == before
