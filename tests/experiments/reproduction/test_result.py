"""Series and statistics over them; what is no number stays out and is not forgotten."""

import pytest

from experiments.reproduction.result import OUT_OF_MEMORY, Pick, Result, Series, scalar
from solvers.ir.errors import InvalidInput, InvalidProblem

SPEED = Series(
    name="speed", unit="x", points={"7b mbs 8": 1.5, "7b mbs 16": 2, "13b mbs 8": 1.0, "13b mbs 16": OUT_OF_MEMORY}
)
RESULT = Result(series=(SPEED, scalar("gap", "%", 0.5), scalar("broken", "%", None)))


@pytest.mark.parametrize(
    ("take", "where", "expected"),
    [
        ("max", "*", (2, 2)),
        ("min", "*", (1, 1)),
        ("mean", "*", (1.5, 1.5)),
        ("sum", "7b *", (3.5, 3.5)),
        ("range", "*", (1, 2)),
        ("only", "13b *", (1, 1)),
        ("range", "13b mbs 16", None),
    ],
)
def test_statistics_are_of_the_numbers_that_match(take: str, where: str, expected: object) -> None:
    assert Pick(series="speed", where=where, take=take).of(RESULT) == expected  # type: ignore[arg-type]


def test_a_scalar_is_picked_without_a_word() -> None:
    assert Pick(series="gap").of(RESULT) == (0.5, 0.5)
    assert Pick(series="broken").of(RESULT) is None
    assert RESULT.failed == 1


@pytest.mark.parametrize(
    ("pick", "sentence"),
    [
        (Pick(series="sped"), "did you mean 'speed'"),
        (Pick(series="speed", where="23b *"), "choose of 7b mbs 8, 7b mbs 16, 13b mbs 8"),
        (Pick(series="speed"), "3 points of 'speed' match"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(pick: Pick, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        pick.of(RESULT)


def test_outcomes_are_listed_apart_and_names_are_unique() -> None:
    assert SPEED.outcomes() == {"13b mbs 16": OUT_OF_MEMORY}
    with pytest.raises(InvalidProblem, match="appears twice"):
        Result(series=(SPEED, SPEED))
