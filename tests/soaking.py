"""Long families of cases: some run in CI, the others with the soak."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def some(cases: Iterable[Any], *, of: int = 2) -> list[ParameterSet]:
    """The first of every two (or `of`) runs in CI, the others run with the soak."""
    return [one if number % of == 0 else in_soak(*one.values) for number, one in enumerate(map(_case, cases))]


def in_soak(*values: Any) -> ParameterSet:
    """A case that takes too long for CI, or is like another one that is there."""
    return pytest.param(*values, marks=pytest.mark.soak)


def _case(one: Any) -> ParameterSet:
    if isinstance(one, ParameterSet):
        return one
    return pytest.param(*one) if isinstance(one, tuple) else pytest.param(one)
