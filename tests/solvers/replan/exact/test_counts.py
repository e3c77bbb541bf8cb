"""Whole numbers that pay at all prices: what is found keeps to every row, and what is excluded does not exist."""

import itertools
import random

import pytest

from solvers.replan.exact import counts
from solvers.replan.exact.bounds import FILLING
from solvers.replan.exact.counts import between, combined, counted, counted_in_python, undominated, whole_numbers

NATIVE = pytest.mark.skipif(FILLING is None, reason="the native extension was not built: run make build")


def _case(seed: int) -> tuple[list[int], int, list[list[int]], list[int]]:
    draw = random.Random(seed)
    kinds, rows = draw.randint(1, 4), draw.randint(1, 4)
    costs = [[draw.randint(0, 9) for _ in range(kinds)] for _ in range(rows)]
    worth, most = [draw.randint(1, 9) for _ in range(kinds)], [draw.randint(0, 40) for _ in range(rows)]
    return worth, draw.randint(0, 60), costs, most


def test_all_numbers_one_by_one_agree() -> None:
    found = excluded = 0
    for seed in range(200):
        worth, least, costs, most = _case(seed)
        none, numbers = counted_in_python(worth, least, costs, most, 10**6)
        if numbers is not None:
            found += 1
            assert _paid(numbers, worth, least, costs, most), seed
        else:
            excluded += 1
            every = itertools.product(*(range(-(-least // one) + 1) for one in worth))
            assert none and not any(_paid(some, worth, least, costs, most) for some in every), seed
    assert min(found, excluded) > 50


def test_a_combined_row_is_paid_by_all_that_pay_every_row() -> None:
    tighter = 0
    for seed in range(200):
        worth, least, costs, most = _case(seed)
        row = combined(worth, costs, most)
        if row is None:
            continue
        every = itertools.product(*(range(-(-least // one) + 1) for one in worth))
        for numbers in (list(some) for some in every if _paid(some, worth, 0, costs, most)):
            assert sum(cost * number for cost, number in zip(row[0], numbers, strict=True)) <= row[1], seed
        tighter += counted_in_python(worth, least, [row[0]], [row[1]], 10**6)[1] is None and len(costs) > 1
    assert tighter > 30, "a row that excludes nothing is of no use"


def test_kinds_that_others_replace_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = 0
    for seed in range(300):
        worth, least, costs, most = _case(seed)
        kept = undominated(worth, costs)
        with monkeypatch.context() as patched:
            patched.setattr(counts, "FILLING", None)
            assert undominated(worth, costs) == kept, seed
        some = [worth[kind] for kind in kept], least, [[row[kind] for kind in kept] for row in costs], most
        assert counted_in_python(*some, 10**6)[0] == counted_in_python(worth, least, costs, most, 10**6)[0], seed
        fewer += len(kept) < len(worth)
    assert fewer > 50 and undominated([2, 2], [[3, 3]]) == [0], "of equal ones the first is kept"


def test_how_many_there_are_lies_between_both_ends() -> None:
    narrow = known = 0
    for seed in range(300):
        worth, least, costs, most = _case(seed)
        if len(worth) > 3:
            continue
        ends = between(worth, least, costs, most)
        none, numbers = whole_numbers(worth, least, costs, most)
        every = list(itertools.product(*(range(-(-least // one) + 1) for one in worth)))
        some = [sum(one) for one in every if _paid(one, worth, least, costs, most)]
        assert not none or (numbers is None) == (not some), seed
        assert numbers is None or _paid(numbers, worth, least, costs, most), seed
        if ends is not None:
            assert all(ends[0] <= one <= ends[1] for one in some), seed
            narrow += ends[0] > 1
        known += none
    assert narrow > 30 and known > 150, (narrow, known)


def test_so_many_are_excluded_only_where_there_are_none() -> None:
    excluded = 0
    for seed in range(300):
        worth, least, costs, most = _case(seed)
        if len(worth) > 3:
            continue
        every = itertools.product(*(range(-(-least // one) + 1) for one in worth))
        some = {sum(one) for one in every if _paid(one, worth, least, costs, most)}
        for number in range(12):
            none = counts._none_of(number, worth, least, costs, most)
            assert not (none and number in some), (seed, number)
            excluded += none and bool(some)
    assert excluded > 100


def test_a_search_that_breaks_off_is_decided_by_how_many_there_are() -> None:
    """Prices of a cluster of 1,137 nodes allow 116.1 to 116.7 pipelines."""
    worth = [76, 66, 70, 74, 36, 43, 50, 57, 64, 33, 40, 47, 54, 61]
    depths = [21, 18, 19, 20, 9, 11, 13, 15, 17, 8, 10, 12, 14, 16]
    first = [1317011456, 1140850688, 1199570944, 1258291200, 612368384, 729808896, 847249408, 964689920, 1082130432]
    first += [553648128, 671088640, 788529152, 905969664, 1023410176]
    costs, most = [first, [653881238] * 14, depths], [76551640412, 76286144460, 1137]
    assert counted(worth, 4560, costs, most) == (False, None)
    assert whole_numbers(worth, 4560, costs, most) == (True, None)


def _paid(numbers: object, worth: list[int], least: int, costs: list[list[int]], most: list[int]) -> bool:
    some = list(numbers)  # type: ignore[call-overload]

    def total(row: list[int]) -> int:
        return sum(cost * number for cost, number in zip(row, some, strict=True))

    return total(worth) >= least and all(total(row) <= limit for row, limit in zip(costs, most, strict=True))


@NATIVE
@pytest.mark.parametrize("steps", [3, 50, 10**6])
def test_the_native_search_takes_the_same_steps(steps: int) -> None:
    for seed in range(600):
        case = _case(seed)
        assert counted(*case, steps) == counted_in_python(*case, steps), seed


def test_too_few_steps_prove_nothing_and_large_numbers_are_left_alone() -> None:
    assert counted([3, 2, 2], 20, [[5, 3, 4], [4, 5, 3]], [31, 33], 2) == (False, None)
    assert counted([2**30], 2**31, [[2**40]], [2**42]) == (False, None)
    assert whole_numbers([1], 1, [[2**32]], [0]) == (True, None), "what a row excludes is no large number"
