"""Checks of a figure's shape: order of curves, monotony, crossing points, ranges, outcomes."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Annotated, Literal

import msgspec

from experiments.reproduction.result import Pick, Result, Series
from solvers.ir.fields import Record, require

Slack = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A relative difference that still counts as equal."""


class Finding(Record, frozen=True, kw_only=True):
    """How often a claim was tested, and each case in which it does not hold, as a phrase."""

    looked: int
    broken: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True only where there was something to look at."""
        return self.looked > 0 and not self.broken


class Check(Record, frozen=True, kw_only=True, tag_field="check"):
    """A claim of the paper, at a named place, that holds or does not hold for our figures."""

    claim: str
    place: str
    because: str | None = None


class Order(Check, frozen=True, kw_only=True, tag="order"):
    """At every label that all curves have as a number, each curve is at least the one before it."""

    lowest_first: tuple[str, ...]
    where: str = "*"
    slack: Slack = 0.0

    def examine(self, result: Result) -> Finding:
        """Look at each label once."""
        curves = [(name, result.named(name).numbers(self.where)) for name in self.lowest_first]
        labels = [label for label in curves[0][1] if all(label in points for _, points in curves)]
        broken = tuple(
            f"{label}: {upper} {above[label]:.4g} is below {lower} {below[label]:.4g}"
            for label in labels
            for (lower, below), (upper, above) in pairwise(curves)
            if _is_less(above[label], below[label], self.slack)
        )
        return Finding(looked=len(labels), broken=broken)


class Monotone(Check, frozen=True, kw_only=True, tag="monotone"):
    """Along the labels' order a curve never falls (or never rises)."""

    of: str
    direction: Literal["rising", "falling"]
    where: str = "*"
    slack: Slack = 0.0

    def examine(self, result: Result) -> Finding:
        """Look at each pair of neighbours."""
        points = list(result.named(self.of).numbers(self.where).items())
        pairs = list(pairwise(points))
        broken = tuple(
            f"{first:.4g} at {label}, then {second:.4g} at {after}"
            for (label, first), (after, second) in pairs
            if self._wrong(first, second)
        )
        return Finding(looked=len(pairs), broken=broken)

    def _wrong(self, first: float, second: float) -> bool:
        low, high = (first, second) if self.direction == "rising" else (second, first)
        return _is_less(high, low, self.slack)


class Crossing(Check, frozen=True, kw_only=True, tag="crossing"):
    """`first_at` is the first label at which `above` exceeds `below`."""

    above: str
    below: str
    first_at: str
    where: str = "*"

    def examine(self, result: Result) -> Finding:
        """Look for the first label."""
        above, below = (result.named(name).numbers(self.where) for name in (self.above, self.below))
        labels = [label for label in above if label in below]
        first = next((label for label in labels if above[label] > below[label]), "nowhere")
        broken = () if first == self.first_at else (f"{self.above} first exceeds {self.below} at {first}",)
        return Finding(looked=len(labels), broken=broken)


class Within(Check, frozen=True, kw_only=True, tag="within"):
    """Every number of the curve lies in the range."""

    of: str
    where: str = "*"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        require(
            self.low is not None or self.high is not None, f"{self.claim!r} has neither low nor high: give one or both"
        )

    def examine(self, result: Result) -> Finding:
        """Look at each point."""
        points = result.named(self.of).numbers(self.where)
        broken = tuple(f"{value:.4g} at {label}" for label, value in points.items() if not self._holds(value))
        return Finding(looked=len(points), broken=broken)

    def _holds(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


class OutcomeIs(Check, frozen=True, kw_only=True, tag="outcome"):
    """The curve ends in an outcome (say, "out of memory") at every label, at some, or at none."""

    of: str
    outcome: str
    where: str = "*"
    at: Literal["every", "some", "none"] = "every"

    def examine(self, result: Result) -> Finding:
        """Look at each point that did not fail."""
        points = {label: value for label, value in _points(result.named(self.of), self.where) if value is not None}
        ends = [label for label, value in points.items() if value == self.outcome]
        others = [label for label in points if label not in ends]
        broken = {
            "every": tuple(f"no {self.outcome} at {label}" for label in others),
            "some": () if ends else (f"{self.outcome} at no label",),
            "none": tuple(f"{self.outcome} at {label}" for label in ends),
        }[self.at]
        return Finding(looked=len(points), broken=broken)


class Greater(Check, frozen=True, kw_only=True, tag="greater"):
    """One statistic is at least another."""

    of: Pick
    than: Pick
    slack: Slack = 0.0

    def examine(self, result: Result) -> Finding:
        """Look at the two statistics."""
        ours, theirs = self.of.of(result), self.than.of(result)
        if ours is None or theirs is None:
            return Finding(looked=0)
        wrong = _is_less(ours[0], theirs[1], self.slack)
        sentence = f"{self.of.text()} is {ours[0]:.4g}, {self.than.text()} {theirs[1]:.4g}"
        return Finding(looked=1, broken=(sentence,) if wrong else ())


AnyCheck = Order | Monotone | Crossing | Within | OutcomeIs | Greater


def _points(series: Series, where: str) -> Iterator[tuple[str, float | str | None]]:
    return ((label, value) for label, value in series.points.items() if fnmatchcase(label, where))


def _is_less(value: float, other: float, slack: float) -> bool:
    return value < other - slack * abs(other)
