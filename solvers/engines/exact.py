"""Sums of products of floats without rounding error: every float is a fraction, and fractions add exactly."""

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from solvers.engines.model import LinearModel

FloatArray = npt.NDArray[np.float64]


def integral(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Which values are finite integers."""
    whole: npt.NDArray[np.bool_] = np.isfinite(values) & (values == np.round(values))
    return whole


def dot(left: FloatArray, right: FloatArray, offset: float = 0.0) -> float:
    """left·right + offset, exact before the one rounding to a float."""
    products = left * right
    size = float(np.abs(products).sum()) + abs(offset)
    if size < 2**53 and np.all(integral(left)) and np.all(integral(right)) and offset.is_integer():
        return float(products.sum() + offset)  # integers below 2⁵³: nothing was rounded
    used = np.flatnonzero(products)
    return float(_sum_products(left[used].tolist(), right[used].tolist()) + Fraction(offset))


def exact_activities(model: "LinearModel", x: FloatArray, rows: npt.NDArray[np.int64]) -> list[Fraction]:
    """The exact value of the given rows at x."""
    found = []
    for row in rows:
        entries = slice(model.row_start[row], model.row_start[row + 1])
        found.append(_sum_products(model.row_value[entries].tolist(), x[model.row_index[entries]].tolist()))
    return found


def _sum_products(left: Iterable[float], right: Iterable[float]) -> Fraction:
    """All floats are whole numbers over powers of two, so whole numbers of the smallest power so far are added up."""
    total, bits = 0, 0
    for a, b in zip(left, right, strict=True):
        (one, under), (other, below) = a.as_integer_ratio(), b.as_integer_ratio()
        down = under.bit_length() + below.bit_length() - 2
        if down > bits:
            total, bits = total << (down - bits), down
        total += (one * other) << (bits - down)
    return Fraction(total, 1 << bits)
