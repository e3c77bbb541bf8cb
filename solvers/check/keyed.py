"""Columns and rows of a relaxation by key, made when they are asked for: a certificate costs no more than it names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Made = TypeVar("Made")
_KEY = re.compile(r"[a-z]+(/(0|[1-9][0-9]{0,15}))*")


class Keyed(Generic[Made]):
    """Columns or rows by key. `families`: how many numbers follow the name in a key, and what makes one of them."""

    def __init__(self, families: Mapping[str, tuple[int, Callable[..., Made | None]]]) -> None:
        self._families = families
        self._known: dict[str, Made | None] = {}

    def get(self, key: str) -> Made | None:
        """The member of that key; None where there is none."""
        if key not in self._known:
            family, *numbers = key.split("/") if _KEY.fullmatch(key) else ("",)
            count, make = self._families.get(family, (-1, lambda: None))
            self._known[key] = make(*map(int, numbers)) if len(numbers) == count else None
        return self._known[key]

    def __getitem__(self, key: str) -> Made:
        """The member of a key that has one."""
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found


@dataclass(frozen=True)
class Column:
    """A number from 0 to `upper` that costs `cost_us` each; a whole one where `integer` says so."""

    upper: int
    cost_us: int = 0
    integer: bool = True


@dataclass(frozen=True)
class Row:
    """`lower` ≤ Σ weight·column ≤ `upper` in every valid plan; None where there is no such limit."""

    lower: int | None
    upper: int | None
    weights: Mapping[str, int]
