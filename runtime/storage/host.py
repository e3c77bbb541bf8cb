"""A limit of the host memory that swapping page-locks."""

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.device.native import core


@contextmanager
def host_limit(limit_bytes: int | None) -> Iterator[None]:
    """Page-lock at most this much host memory inside; idle memory of earlier uses beyond it is given back first."""
    if limit_bytes is not None and core.host_stats().held_bytes > limit_bytes:
        core.trim_host()
    core.set_host_limit(limit_bytes)
    try:
        yield
    finally:
        core.set_host_limit(None)
