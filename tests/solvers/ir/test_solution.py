"""A status is a promise: answers that break theirs cannot be made, and gaps say what is known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.ir import InvalidInput, Limits, Solution, Status


def answer(**fields: Any) -> Solution[str]:
    """A feasible answer of 120 us over a base of 100 us, proved to be at least 110, changed as told."""
    usual = {
        "status": Status.FEASIBLE,
        "plan": "a plan",
        "solver": "test",
        "objective": 120,
        "bound": 110.0,
        "base": 100,
    }
    return Solution(**{**usual, **fields})


def test_gap_and_overhead_gap() -> None:
    """(120 − 110) / 120 = 1/12 sounds fine; of the 20 us that swapping costs, half may be unnecessary: 10 / 20."""
    assert answer().gap == pytest.approx(1 / 12)
    assert answer().overhead_gap == pytest.approx(0.5)


def test_gaps_are_zero_where_the_bound_is_met() -> None:
    met = answer(status=Status.OPTIMAL, objective=120, bound=120.0)
    assert (met.gap, met.overhead_gap) == (0, 0)
    without_overhead = answer(objective=100, bound=100.0)
    assert (without_overhead.gap, without_overhead.overhead_gap) == (0, 0)
    nothing = answer(objective=0, bound=0.0, base=0)
    assert (nothing.gap, nothing.overhead_gap) == (0, 0)


def test_gaps_are_none_where_unknown() -> None:
    assert (answer(bound=None).gap, answer(bound=None).overhead_gap) == (None, None)
    assert answer(base=None).overhead_gap is None
    assert answer(objective=100, bound=90.0).overhead_gap is None
    unknown = answer(status=Status.UNKNOWN, plan=None, objective=None)
    assert (unknown.gap, unknown.overhead_gap) == (None, None)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_the_overhead_gap_is_never_kinder_than_the_gap(base: int, bound: int, objective: int) -> None:
    base, bound, objective = sorted((base, bound, objective))
    solution = answer(base=base, bound=float(bound), objective=objective)
    assert solution.gap is not None
    assert solution.overhead_gap is not None
    assert 0 <= solution.gap <= solution.overhead_gap <= 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"plan": None}, "answered feasible with no plan"),
        ({"objective": None}, "objective None"),
        ({"status": Status.INFEASIBLE}, "answered infeasible with a plan"),
        ({"status": Status.UNKNOWN, "plan": None}, "answered unknown with no plan and objective 120"),
        ({"bound": 121.0}, "bound 121.0 above its own objective 120"),
        ({"bound": float("nan")}, "says nothing"),
        ({"bound": float("-inf")}, "says nothing"),
        ({"status": Status.OPTIMAL}, "answered optimal, but its bound 110.0"),
        ({"status": Status.OPTIMAL, "bound": None}, "answered optimal, but its bound None"),
    ],
)
def test_answers_that_contradict_themselves_cannot_be_made(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        answer(**fields)


@pytest.mark.parametrize(
    "limits",
    [
        {"time_s": -1},
        {"time_s": float("nan")},
        {"work": -0.5},
        {"gap": -0.1},
        {"threads": 0},
        {"seed": -1},
        {"seed": 2**31},
    ],
)
def test_limits_that_cannot_mean_anything_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(limits))} is "):
        Limits(**limits)
