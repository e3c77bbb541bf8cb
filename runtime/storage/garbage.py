"""Steps without garbage collection, whose moments of freeing memory cannot be planned."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection inside: tensors in reference cycles live as long in every step."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
