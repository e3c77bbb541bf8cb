"""What certificates of all kinds have in common: they are untrusted, and their leaves are those of a tree.

A leaf holds limits of columns and prices (duals) of rows, all of them whole numbers. Whatever the prices are, what they
add up to bounds the objective within the leaf's limits; so only the form of a certificate can be wrong, and its tree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from solvers.check.keyed import Column, Keyed, Row

Box = dict[str, tuple[int, int]]
"""Column → its lower and upper limit; a column left out has those of the relaxation."""
Duals = tuple[tuple[int, int, Row], ...]
"""(dual, the row's side that it prices, row)."""
LARGEST = 2**100
"""The largest number that a certificate may hold."""


class Fault(Exception):
    """What is wrong with a certificate, in one sentence."""


class Part(Protocol):
    """A leaf: its place in the certificate, for sentences, and its limits."""

    @property
    def place(self) -> str:
        """Where it stands."""
        ...

    @property
    def limits(self) -> Box:
        """Limits of its columns."""
        ...


@dataclass(frozen=True)
class Leaf:
    """A leaf of a tree: limits of some columns, and the priced rows as (dual, side, row) for what lies within them."""

    place: str
    limits: Box
    duals: Duals


def least_value(columns: Keyed[Column], unit: int, limits: Box, duals: Duals, reduced: dict[str, int]) -> int:
    """The least that the priced rows leave to pay, in 1/unit µs: Σ dual·side, and each column at its cheaper limit.

    `reduced` holds what columns cost beside `cost_us` and the rows' prices; it has every column that may cost less than
    nothing, or that has to be paid though no row names it.
    """
    total = 0
    reduced = dict.fromkeys(limits, 0) | reduced
    for dual, side, row in duals:
        total += dual * side
        for key, weight in row.weights.items():
            reduced[key] = reduced.get(key, 0) - dual * weight
    for key, change in reduced.items():  # any other column costs nothing or more, and may be 0
        column = columns[key]
        cost = unit * column.cost_us + change
        low, high = limits.get(key, (0, column.upper))
        total += cost * (low if cost > 0 else high)
    return total


# The tree


def require_cover(leaves: Sequence[Part], columns: Keyed[Column]) -> None:
    """The leaves are those of a tree that splits one column at a time: undo the splits from the root on."""
    regions: list[tuple[Box, Sequence[Part]]] = [({}, leaves)]
    while regions:
        region, inside = regions.pop()
        if len(inside) == 1:
            _require_whole(inside[0], region, columns)
            continue
        key, end = _split(inside)
        low, high = region.get(key, (0, columns[key].upper))
        regions.append((region | {key: (low, end)}, [leaf for leaf in inside if leaf.limits[key][1] <= end]))
        regions.append((region | {key: (end + 1, high)}, [leaf for leaf in inside if leaf.limits[key][1] > end]))


def _require_whole(leaf: Part, region: Box, columns: Keyed[Column]) -> None:
    for key, (low, high) in leaf.limits.items():
        least, most = region.get(key, (0, columns[key].upper))
        if low > least or high < most:
            raise Fault(f"{leaf.place} holds {key} in {low}…{high}, but no other leaf holds the rest of {least}…{most}")


def _split(inside: Sequence[Part]) -> tuple[str, int]:
    """A column and a value such that each leaf is on one side: at most the value, or more."""
    for key in min((leaf.limits for leaf in inside), key=len):
        if all(key in leaf.limits for leaf in inside):
            (_, end), *ranges = sorted(leaf.limits[key] for leaf in inside)
            for low, high in ranges:
                if low > end:
                    return key, end
                end = max(end, high)
    raise Fault(
        f"{inside[0].place} and {inside[1].place} are on no two sides of a split: leaves are those of a binary tree"
    )


# Forms


def read_leaf(value: object, columns: Keyed[Column], rows: Keyed[Row], place: str) -> Leaf:
    """A leaf: limits of whole columns, and prices of rows."""
    found = fields(value, ("limits", "duals"), place)
    limits = read_limits(found["limits"], columns, f"{place}.limits")
    return Leaf(place, limits, read_duals(found["duals"], rows, f"{place}.duals"))


def read_limits(value: object, columns: Keyed[Column], place: str) -> Box:
    """Limits of whole columns that the relaxation has."""
    return {key: _interval(key, pair, columns, place) for key, pair in mapping(value, place).items()}


def _interval(key: str, value: object, columns: Keyed[Column], place: str) -> tuple[int, int]:
    column = columns.get(key)
    if column is None or not column.integer:
        raise Fault(f"{place} has {shown(key)}, which is no whole column of this relaxation")
    pair = integers(value, 0, column.upper, f"{place} of {key}")
    if len(pair) != 2 or pair[0] > pair[1]:
        raise Fault(f"{place} of {key} is {shown(value)}: give [low, high], low ≤ high")
    return pair[0], pair[1]


def read_duals(value: object, rows: Keyed[Row], place: str) -> Duals:
    """Prices of rows that the relaxation has, each on a side that its row has."""
    return tuple(_priced(key, dual, rows, place) for key, dual in mapping(value, place).items())


def _priced(key: str, value: object, rows: Keyed[Row], place: str) -> tuple[int, int, Row]:
    row = rows.get(key)
    if row is None:
        raise Fault(f"{place} has {shown(key)}, which is no row of this relaxation")
    dual = integer(value, -LARGEST, LARGEST, f"{place} of {key}")
    side = 0 if dual == 0 else row.lower if dual > 0 else row.upper
    if side is None:
        raise Fault(f"{place} of {key} is {dual}, but that row has no {'lower' if dual > 0 else 'upper'} limit")
    return dual, side, row


def fields(value: object, names: tuple[str, ...], place: str) -> Mapping[str, Any]:
    """An object that has these fields and no others."""
    found = mapping(value, place)
    for name in names:
        if name not in found:
            raise Fault(f"{place} lacks {name}")
    for name in found:
        if name not in names:
            raise Fault(f"{place} has {shown(name)}, which is none of {', '.join(names)}")
    return found


def mapping(value: object, place: str) -> Mapping[str, Any]:
    """An object, its keys texts."""
    if not isinstance(value, Mapping):
        raise Fault(f"{place} is {shown(value)}, not an object")
    for key in value:
        if not isinstance(key, str):
            raise Fault(f"{place} has the key {shown(key)}, not a text")
    return value


def entries(value: object, place: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list | tuple):
        raise Fault(f"{place} is {shown(value)}, not a list")
    return list(value)


def integers(value: object, least: int, most: int, place: str) -> list[int]:
    """A list of whole numbers within limits."""
    return [integer(entry, least, most, f"{place}[{number}]") for number, entry in enumerate(entries(value, place))]


def integer(value: object, least: int, most: int, place: str) -> int:
    """A whole number within limits."""
    if type(value) is not int:  # bool is an int too
        raise Fault(f"{place} is {shown(value)}, not a whole number")
    if not least <= value <= most:
        raise Fault(f"{place} is {shown(value)}, outside {least}…{most}" if least <= most else f"{place} must be empty")
    return value


def shown(value: object) -> str:
    """A value for a sentence, whatever its size."""
    if isinstance(value, str | int | float | bool | None) and (not isinstance(value, int) or value.bit_length() <= 128):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    return "a number beyond 128 bits" if isinstance(value, int) else f"of type {type(value).__name__}"
