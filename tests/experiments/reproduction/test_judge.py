"""Verdicts by hand."""

import pytest

from experiments.reproduction.entry import Claim, Quantity
from experiments.reproduction.judge import (
    BRACKETED,
    DIFFERS,
    NO_REASON,
    OURS_ONLY,
    REPRODUCED,
    WITHIN,
    deviations,
    judge_quantity,
)
from experiments.reproduction.result import OUT_OF_MEMORY, Result, Series, Take

RESULT = Result(
    series=(
        Series(name="s", unit="x", points={"a": 1.0, "b": 2.0}),
        Series(name="dead", unit="x", points={"a": OUT_OF_MEMORY}),
        Series(name="failed", unit="x", points={"a": None}),
    )
)


def asked(paper: Claim | None, take: Take, of: str = "s", **more: object) -> Quantity:
    known = {"name": "q", "place": "§1", "unit": "x", "of": of, "take": take, "paper": paper}
    return Quantity(**{**known, "unreadable": None if paper else "an image", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("paper", "take", "tolerance", "verdict", "deviation"),
    [
        (Claim(value=2), "max", 0.0, REPRODUCED, (0.0,)),
        (Claim(value=1.6), "max", 0.25, REPRODUCED, (0.25,)),
        (Claim(value=1.6), "max", 0.2, DIFFERS, (0.25,)),
        (Claim(value=4), "range", 0.5, DIFFERS, (-0.75, -0.5)),
        (Claim(value=1.5), "range", 0.0, BRACKETED, (-1 / 3, 1 / 3)),
        (Claim(value=2), "range", 0.0, BRACKETED, (-0.5, 0.0)),
        (Claim(value=1.5), "range", 0.4, REPRODUCED, (-1 / 3, 1 / 3)),
        (Claim(value=2.1), "range", 0.0, DIFFERS, (-11 / 21, -1 / 21)),
        (Claim(low=1, high=2), "range", 0.0, REPRODUCED, (0.0, 0.0)),
        (Claim(low=0.5, high=2.5), "range", 0.0, WITHIN, (1.0, -0.2)),
        (Claim(low=0.5, high=1.6), "range", 0.0, DIFFERS, (1.0, 0.25)),
        (Claim(low=0.5, high=1.6), "range", 0.25, WITHIN, (1.0, 0.25)),
        (Claim(low=1, high=3), "max", 0.0, WITHIN, (0.0,)),
        (Claim(low=2.5, high=3), "max", 0.1, DIFFERS, (-0.2,)),
        (Claim(high=2), "range", 0.0, WITHIN, ()),
        (Claim(high=1.6), "max", 0.0, DIFFERS, (0.25,)),
        (Claim(low=4), "min", 0.0, DIFFERS, (-0.75,)),
        (Claim(low=1), "range", 0.0, WITHIN, ()),
    ],
)
def test_verdicts(paper: Claim, take: Take, tolerance: float, verdict: str, deviation: tuple[float, ...]) -> None:
    judged = judge_quantity(asked(paper, take, tolerance=tolerance), RESULT)
    assert judged.verdict == verdict
    assert judged.deviation == pytest.approx(deviation)
    assert judged.reason == (NO_REASON if verdict == DIFFERS else None)


def test_a_known_reason_is_told_only_where_ours_differs() -> None:
    assert judge_quantity(asked(Claim(value=9), "max", because="They count twice"), RESULT).reason == "They count twice"
    assert judge_quantity(asked(Claim(value=2), "max", because="They count twice"), RESULT).reason is None


def test_ours_alone_says_why_the_papers_value_is_missing() -> None:
    judged = judge_quantity(asked(None, "max"), RESULT)
    assert (judged.verdict, judged.ours, judged.reason) == (OURS_ONLY, (2.0, 2.0), "an image")


@pytest.mark.parametrize(
    ("of", "reason"),
    [("dead", "every cell ends in out of memory"), ("failed", "every cell failed"), ("t", "no series 't'")],
)
def test_without_a_number_the_row_fails_with_the_reason(of: str, reason: str) -> None:
    judged = judge_quantity(asked(Claim(value=1), "max", of=of), RESULT)
    assert judged.verdict == "failed"
    assert reason in (judged.reason or "")


def test_outcomes_everywhere_differ_where_the_entry_knows_why() -> None:
    result = Result(series=(Series(name="dead", unit="x", points={"a": OUT_OF_MEMORY, "b": OUT_OF_MEMORY}),))
    judged = judge_quantity(asked(Claim(value=1), "max", of="dead", because="It is too large"), result)
    assert (judged.verdict, judged.reason) == (DIFFERS, "It is too large; every cell ends in out of memory")
    assert judge_quantity(asked(Claim(value=1), "max", of="dead"), result).verdict == "failed"
    failed = Result(series=(Series(name="dead", unit="x", points={"a": OUT_OF_MEMORY, "b": None}),))
    judged = judge_quantity(asked(Claim(value=1), "max", of="dead", because="It is too large"), failed)
    assert judged.verdict == "failed"


def test_a_deviation_from_zero_is_a_difference() -> None:
    assert deviations(Claim(value=0), (0.5, 0.5)) == (0.5,)
