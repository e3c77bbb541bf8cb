"""What a compute function returns: named series of numbers, in the units of the paper's figure."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import Record, require, require_unique
from solvers.ir.names import unknown

OUT_OF_MEMORY = "out of memory"
"""The outcome of a configuration that does not fit."""
Value = float | str | None
"""A number; an outcome such as `OUT_OF_MEMORY`; None where the cell failed."""
Take = Literal["only", "max", "min", "mean", "sum", "range"]
STATISTICS: dict[Take, Callable[[Sequence[float]], float]] = {
    "only": max,
    "max": max,
    "min": min,
    "sum": sum,
    "mean": lambda numbers: sum(numbers) / len(numbers),
}
Interval = tuple[float, float]
"""The least and the largest number; both are the same where one number was asked for."""


class Series(Record, frozen=True, kw_only=True):
    """One curve or group of bars: label → value, in the order of the paper's axis.

    Units are written out: "x" for ratios, "%" with 71 meaning 71 %, "s", "GB" (10⁹ bytes), "samples/s".
    """

    name: str
    unit: str
    points: dict[str, Value]

    def numbers(self, where: str = "*") -> dict[str, float]:
        """The points that are numbers, of the labels that the glob matches."""
        return {
            label: value
            for label, value in self.points.items()
            if isinstance(value, float | int) and fnmatchcase(label, where)
        }

    def outcomes(self, where: str = "*") -> dict[str, str | None]:
        """The points that are no numbers, of the labels that the glob matches."""
        return {
            label: value
            for label, value in self.points.items()
            if not isinstance(value, float | int) and fnmatchcase(label, where)
        }


class Result(Record, frozen=True, kw_only=True):
    """All series of one table or figure, and sentences that belong under it."""

    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_unique([one.name for one in self.series], "series")

    def named(self, name: str) -> Series:
        """The series of that name; raises `InvalidInput` naming the nearest one."""
        for one in self.series:
            if one.name == name:
                return one
        raise unknown("series", name, (one.name for one in self.series))

    @property
    def failed(self) -> int:
        """Points whose cells failed."""
        return sum(value is None for one in self.series for value in one.points.values())


def scalar(name: str, unit: str, value: Value) -> Series:
    """A single figure as a series of one point."""
    return Series(name=name, unit=unit, points={name: value})


class Pick(Record, frozen=True, kw_only=True):
    """A statistic over some points of a series."""

    series: str
    where: str = "*"
    take: Take = "only"

    def of(self, result: Result) -> Interval | None:
        """The statistic; None where no point is a number. Raises `InvalidInput` where the choice means nothing."""
        series = result.named(self.series)
        require(
            any(fnmatchcase(label, self.where) for label in series.points),
            f"no label of {self.series!r} matches {self.where!r}: choose of {', '.join(series.points)}",
        )
        numbers = list(series.numbers(self.where).values())
        return _statistic(self, numbers) if numbers else None

    def text(self) -> str:
        """In words: `largest lynx over full at gpt-7b *`."""
        words = {"only": "", "max": "largest ", "min": "smallest ", "mean": "mean ", "sum": "sum of ", "range": ""}
        return f"{words[self.take]}{self.series}{'' if self.where == '*' else f' at {self.where}'}"


def _statistic(pick: Pick, numbers: list[float]) -> Interval:
    if pick.take == "range":
        return min(numbers), max(numbers)
    if pick.take == "only" and len(numbers) > 1:
        raise InvalidInput(
            f"{len(numbers)} points of {pick.series!r} match {pick.where!r}, but `take: only` wants one: "
            "narrow `where` or choose a statistic"
        )
    value = STATISTICS[pick.take](numbers)
    return value, value
