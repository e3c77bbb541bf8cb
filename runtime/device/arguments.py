"""The sentence for a number that the simulated device's extension would refuse only later, in its own words."""

import math
import reprlib
from numbers import Real

from solvers.ir.errors import InvalidInput

END_OF_INT64 = 2.0**63
MOST_BYTES = 1 << 62
MOST_US = 1e12
"""Twelve days: sums of such durations in nanoseconds stay far below 2**63."""


def require_integer(name: str, value: object, least: int, end: int, remedy: str) -> None:
    """Raise `InvalidInput` unless the value is an integer of [least, end); True and False are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{name} of {reprlib.repr(value)} is no integer: {remedy}")
    if not least <= value < end:
        raise InvalidInput(f"{name} of {value} is outside [{least}, {end}): {remedy}")


def require_duration(name: str, value: object) -> None:
    """Raise `InvalidInput` unless the value is a number of microseconds of [0, `MOST_US`]."""
    if not _is_number(value) or not 0 <= value <= MOST_US:  # type: ignore[operator]
        raise InvalidInput(f"{name} of {reprlib.repr(value)} is outside [0, {MOST_US:g}]: a call takes time or none")


def require_share(name: str, value: object, remedy: str) -> None:
    """Raise `InvalidInput` unless the value is a number of [0, 1)."""
    if not _is_number(value) or not 0 <= value < 1:  # type: ignore[operator]
        raise InvalidInput(f"{name} of {reprlib.repr(value)} is outside [0, 1): {remedy}")


def require_finite(name: str, value: object, below: float, remedy: str) -> None:
    """Raise `InvalidInput` unless the value is a finite number whose amount is below that."""
    if not _is_number(value) or not math.isfinite(value) or not abs(value) < below:  # type: ignore[arg-type]
        raise InvalidInput(f"{name} of {reprlib.repr(value)} is no number that a program can go on with: {remedy}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
