"""Field types shared by all records: JSON-safe non-negative integers; the frozen record that refuses unknown keys."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from solvers.ir.errors import InvalidProblem

LARGEST = 2**53
"""The largest integer that every JSON reader holds exactly; sizes and times beyond it are refused."""

Bytes = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
PositiveMicroseconds = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Rate = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
"""Bytes or operations per second."""
Index = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Count = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
NonNegative = Annotated[int, msgspec.Meta(ge=0)]
"""A sum of sizes, which may be larger than each."""
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]
TensorId = int | str


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A frozen value with a fixed JSON form; decoding refuses unknown keys and wrong types, naming the place."""


def require(condition: bool, sentence: str) -> None:
    """Raise `InvalidProblem(sentence)` unless the condition holds."""
    if not condition:
        raise InvalidProblem(sentence)


def require_step(step_us: int) -> None:
    """Refuse a problem some decision of which may take longer than a file's numbers, bounds too, say exactly."""
    require(
        step_us <= LARGEST,
        f"a step may take {step_us} us, beyond the {LARGEST} that files hold: correct the times, or the samples and "
        "tokens they come from",
    )


def require_index(index: int, size: int, place: str, what: str) -> None:
    """Refuse an index outside 0…size−1, naming its place."""
    if not 0 <= index < size:
        raise InvalidProblem(f"{place} is {index}, but there are only {size} {what} (0…{size - 1}): correct the index")


def require_unique(names: Sequence[TensorId], what: str) -> None:
    """Refuse a repeated id."""
    seen: set[TensorId] = set()
    for name in names:
        if name in seen:
            raise InvalidProblem(f"{what} {name!r} appears twice: ids must be unique")
        seen.add(name)
