"""Callbacks that keep nobody alive."""

import weakref
from collections.abc import Callable
from typing import Any


def if_alive(method: Callable[..., object]) -> Callable[..., None]:
    """Calls a bound method as long as its object lives, and does not keep it alive."""
    there = weakref.WeakMethod(method)

    def call(*args: Any) -> None:
        alive = there()
        if alive is not None:
            alive(*args)

    return call
