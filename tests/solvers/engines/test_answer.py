"""Bounds of float engines become integers without ever becoming too high."""

from hypothesis import given
from hypothesis import strategies as st

from solvers.engines import Answer, integral_bound
from solvers.ir.solution import Status


def test_a_bound_is_lifted_to_the_next_integer_and_noise_is_not() -> None:
    assert integral_bound(6.1) == 7
    assert integral_bound(6.0000003) == 6
    assert integral_bound(5.9999999) == 6
    assert integral_bound(-6.9) == -6
    assert integral_bound(142_908.0000001) == 142_908


@given(st.integers(-(10**9), 10**9), st.floats(-1, 1))
def test_a_true_bound_within_its_tolerance_never_passes_the_optimum(optimum: int, noise: float) -> None:
    assert integral_bound(optimum + noise * (1e-6 + 0.9e-9 * abs(optimum))) <= optimum


def test_gaps() -> None:
    def gap(objective: float | None, bound: float | None) -> float | None:
        return Answer(status=Status.FEASIBLE, engine="test", objective=objective, bound=bound).gap

    assert gap(200, 150) == 0.25
    assert gap(-100, -150) == 0.5
    assert gap(0, 0) == 0
    assert gap(0, -1) == float("inf")
    assert gap(1, None) is None
