"""Duals as whole numbers, as certificates hold them: bounds are then added up without rounding."""

UNIT, LARGEST = 2**32, 2**62
"""Unit of integer duals, 1/UNIT µs (for a row of bytes: 1/UNIT µs per byte), and their largest value."""


def whole_dual(dual_us: float) -> int:
    """An engine's dual in 1/UNIT µs; any rounding of it proves a bound, too."""
    return round(max(-LARGEST, min(LARGEST, dual_us * UNIT)))


def whole_us(bound: int) -> int:
    """The least whole microsecond that a bound in 1/UNIT µs allows."""
    return -(-bound // UNIT)
