from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from runtime.profile.timing import operator_times_us

durations = st.lists(st.integers(0, 5_000_000), min_size=2, max_size=60)


def test_thirds_of_a_microsecond_do_not_add_up() -> None:
    # Thirty operators of 33,333 ns: rounding each alone would lose 10 µs of 1000.
    ends = [33_333 * (number + 1) for number in range(30)]
    assert sum(operator_times_us([*ends, ends[-1]])) == 1000


def test_an_operator_too_short_for_the_clock_borrows_a_microsecond() -> None:
    assert operator_times_us([0, 100_000, 100_000]) == (1, 99)


def test_the_last_operator_borrows_from_its_predecessor_and_owns_the_rest_of_the_step() -> None:
    assert operator_times_us([100_000, 100_000, 100_000]) == (99, 1)
    assert operator_times_us([100_000, 150_000]) == (150,)


def test_a_step_without_operators_takes_no_time() -> None:
    assert operator_times_us([5000]) == ()


@given(durations)
def test_times_are_positive_and_add_up_to_the_step(parts: list[int]) -> None:
    ends = list(accumulate(parts))
    times = operator_times_us(ends)
    assert len(times) == len(parts) - 1
    assert all(time >= 1 for time in times)
    assert sum(times) == max((ends[-1] + 500) // 1000, len(times))


@given(durations)
def test_every_operator_ends_when_the_clock_said_unless_it_had_to_borrow(parts: list[int]) -> None:
    parts = [part + 2000 for part in parts]  # nobody needs to borrow
    ends = list(accumulate(parts))
    told = list(accumulate(operator_times_us(ends)))[:-1]
    assert all(abs(mine * 1000 - true) <= 500 for mine, true in zip(told, ends, strict=False))
