"""Each check holds for one figure and is broken by another, and never holds where there is nothing to look at."""

import msgspec
import pytest

from experiments.reproduction.checks import AnyCheck, Finding
from experiments.reproduction.result import OUT_OF_MEMORY, Result, Series
from solvers.ir.errors import InvalidProblem

RESULT = Result(
    series=(
        Series(name="low", unit="", points={"a": 1.0, "b": 2.0, "c": 3.0, "d": OUT_OF_MEMORY}),
        Series(name="high", unit="", points={"a": 2.0, "b": 2.0, "c": 4.0, "d": 9.0}),
        Series(name="wild", unit="", points={"a": 0.0, "b": 3.0, "c": 2.95, "d": 5.0}),
        Series(name="gone", unit="", points={"a": None, "b": OUT_OF_MEMORY, "c": OUT_OF_MEMORY, "d": OUT_OF_MEMORY}),
    )
)


def examine(check: str, **fields: object) -> Finding:
    decoded: AnyCheck = msgspec.convert({"check": check, "claim": "c", "place": "p", **fields}, AnyCheck)
    return decoded.examine(RESULT)


@pytest.mark.parametrize(
    ("check", "fields", "looked", "broken"),
    [
        ("order", {"lowest_first": ["low", "high"]}, 3, 0),
        ("order", {"lowest_first": ["high", "low"]}, 3, 2),
        ("order", {"lowest_first": ["low", "wild"]}, 3, 2),
        ("order", {"lowest_first": ["low", "wild"], "slack": 0.1}, 3, 1),
        ("order", {"lowest_first": ["low", "wild"], "where": "[bc]", "slack": 0.1}, 2, 0),
        ("monotone", {"of": "low", "direction": "rising"}, 2, 0),
        ("monotone", {"of": "low", "direction": "falling"}, 2, 2),
        ("monotone", {"of": "wild", "direction": "rising"}, 3, 1),
        ("monotone", {"of": "wild", "direction": "rising", "slack": 0.05}, 3, 0),
        ("crossing", {"above": "wild", "below": "high", "first_at": "b"}, 4, 0),
        ("crossing", {"above": "wild", "below": "high", "first_at": "d"}, 4, 1),
        ("crossing", {"above": "low", "below": "high", "first_at": "a"}, 3, 1),
        ("within", {"of": "high", "low": 2}, 4, 0),
        ("within", {"of": "high", "low": 2, "high": 8}, 4, 1),
        ("outcome", {"of": "low", "outcome": OUT_OF_MEMORY, "at": "some"}, 4, 0),
        ("outcome", {"of": "high", "outcome": OUT_OF_MEMORY, "at": "some"}, 4, 1),
        ("outcome", {"of": "low", "outcome": OUT_OF_MEMORY}, 4, 3),
        ("outcome", {"of": "gone", "outcome": OUT_OF_MEMORY}, 3, 0),
        ("outcome", {"of": "low", "outcome": OUT_OF_MEMORY, "at": "none"}, 4, 1),
        ("outcome", {"of": "high", "outcome": OUT_OF_MEMORY, "at": "none"}, 4, 0),
        ("greater", {"of": {"series": "high", "take": "mean"}, "than": {"series": "low", "take": "max"}}, 1, 0),
        ("greater", {"of": {"series": "low", "take": "max"}, "than": {"series": "high", "take": "mean"}}, 1, 1),
        ("greater", {"of": {"series": "gone", "take": "max"}, "than": {"series": "high", "take": "mean"}}, 0, 0),
    ],
)
def test_checks(check: str, fields: dict[str, object], looked: int, broken: int) -> None:
    finding = examine(check, **fields)
    assert (finding.looked, len(finding.broken)) == (looked, broken)
    assert finding.holds == (looked > 0 and broken == 0)


def test_a_breach_says_where_and_how_far() -> None:
    assert examine("order", lowest_first=["low", "wild"]).broken[0] == "a: wild 0 is below low 1"
    assert examine("monotone", of="wild", direction="rising").broken == ("3 at b, then 2.95 at c",)
    assert examine("crossing", above="wild", below="high", first_at="d").broken == ("wild first exceeds high at b",)


def test_a_range_without_ends_is_refused() -> None:
    with pytest.raises((InvalidProblem, msgspec.ValidationError), match="neither low nor high"):
        examine("within", of="low")
