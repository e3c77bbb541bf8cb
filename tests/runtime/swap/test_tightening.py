"""Once a portfolio has been tried, its best policy is tried for more of the budget, or for less where it needs help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.swap.portfolio import PolicyChoice
from runtime.swap.report import PolicyResult, SessionCounts
from runtime.swap.tightening import MOST, Aimed, Tightening, ran_last, slower

BUDGET = 1000
CALM, HELPED = SessionCounts(), SessionCounts(passive=1)


def ran(duration_us: float, counts: SessionCounts = CALM) -> PolicyResult:
    return PolicyResult(choice=PolicyChoice(), generation=1, duration_us=duration_us, counts=counts)


PORTFOLIO = [ran(900.0), ran(700.0), ran(800.0)]
PLANNED = [Aimed(900, 890)] * 3
TIGHT = [*PLANNED, Aimed(980, 970)]
FAILED = PolicyResult(choice=PolicyChoice(), generation=1, reason="the same as greedy-swap")


def tried(*results: PolicyResult, planned: list[Aimed] = PLANNED) -> Tightening:
    """Where a policy has been proposed after these of the portfolio."""
    made = Tightening(BUDGET)
    assert made.next(results or PORTFOLIO, planned) is not None
    return made


def test_the_fastest_is_tried_for_nearly_all_of_the_budget_and_kept_if_as_fast() -> None:
    made = Tightening(BUDGET)
    assert made.next(PORTFOLIO, PLANNED) == (1, int(MOST * BUDGET))
    results = [*PORTFOLIO, ran(702.0)]
    assert made.best(results) == 3
    assert 3 in made and 1 not in made
    assert not made.again(results, TIGHT)


def test_one_that_is_slower_or_needs_more_on_demand_runs_again_and_then_half_is_tried() -> None:
    for trial in (ran(710.0), ran(699.0, HELPED)):
        made = tried()
        results = [*PORTFOLIO, trial]
        assert made.best(results) == 1
        assert made.again(results, TIGHT) and not made.again(results, TIGHT)
        assert made.next(results, TIGHT) == (1, 935)  # half of what is between the aim and what it would have used


def test_one_that_is_much_slower_does_not_run_again_and_one_that_had_blocks_moved_does() -> None:
    assert not tried().again([*PORTFOLIO, ran(750.0)], TIGHT)
    assert tried().again([*PORTFOLIO, ran(700.0, SessionCounts(moved=1))], TIGHT)


def test_one_that_made_the_allocator_give_its_cache_back_is_not_tried_again() -> None:
    made, results = tried(), [*PORTFOLIO, ran(650.0, SessionCounts(retries=1))]
    assert made.best(results) == 1
    assert not made.again(results, TIGHT)


def test_clearly_faster_is_better_with_a_passive_swap_too() -> None:
    assert tried().best([*PORTFOLIO, ran(650.0, SessionCounts(passive=1, fetched=1))]) == 3


def test_of_two_iterations_the_slower_one_counts_unless_the_later_needs_no_help() -> None:
    assert slower(ran(700.0), ran(800.0, HELPED)).duration_us == 700.0
    assert slower(ran(700.0, HELPED), ran(800.0, HELPED)).duration_us == 800.0
    assert slower(ran(900.0, HELPED), ran(800.0, HELPED)).duration_us == 900.0
    assert slower(ran(900.0, HELPED), None).duration_us == 900.0
    for counts in (HELPED, SessionCounts(passive=1, retries=1)):
        assert slower(ran(700.0, counts), ran(701.0)) == ran(701.0, counts), "a quicker one's help is not forgotten"


def test_where_whole_tensors_leave_much_all_of_the_budget_is_tried_and_is_never_sure_at_once() -> None:
    results, coarse = [*PORTFOLIO, ran(700.0)], [*PLANNED, Aimed(980, 930)]
    made = tried()
    assert made.next(results, coarse) == (3, BUDGET)
    assert made.again([*results, ran(700.0)], [*coarse, Aimed(BUDGET, 990)])
    assert tried().next(results, TIGHT) is None  # 970 are not much less


def test_one_that_needs_help_is_planned_for_less_and_then_for_more_again() -> None:
    helped = [ran(900.0), ran(700.0, HELPED), ran(800.0)]
    planned = [Aimed(1000, 985)] * 3
    made = Tightening(BUDGET)
    assert made.next(helped, planned) == (1, 955)
    results, loose = [*helped, ran(690.0)], [*planned, Aimed(955, 930)]
    assert made.best(results) == 3
    assert made.next(results, loose) == (3, 970)
    made = tried(*helped, planned=planned)
    assert made.next([*helped, ran(750.0)], loose) == (1, 900)  # for still less


@pytest.mark.parametrize("peak", [890, 970])
def test_a_plan_that_is_known_costs_no_try(peak: int) -> None:
    """That of the best one, whose tensors are large then, or of one that was too much."""
    made = tried()
    aim = made.next([*PORTFOLIO, FAILED], [*PLANNED, Aimed(980, peak)])
    assert aim == (1, BUDGET if peak == 890 else 940)


def test_there_is_an_end() -> None:
    """After so many tries, where nothing is between, and where a plan for less is another's that has not served."""
    made = Tightening(BUDGET, tries=1)
    assert made.next(PORTFOLIO, PLANNED) is not None
    assert not made.again([*PORTFOLIO, ran(800.0)], TIGHT)
    assert made.next([*PORTFOLIO, ran(800.0)], TIGHT) is None
    assert Tightening(BUDGET).next(PORTFOLIO, [Aimed(978, 975)] * 3) is None
    assert Tightening(BUDGET).next([FAILED], PLANNED[:1]) is None
    helped, planned = [ran(700.0, HELPED)], [Aimed(1000, 985)]
    assert tried(*helped, planned=planned).next([*helped, FAILED], [*planned, Aimed(955, 0)]) is None


def test_the_least_plan_there_is_is_not_asked_for_less_for_ever() -> None:
    helped, planned = [ran(700.0, HELPED)], [Aimed(1000, 985)]
    made = tried(*helped, planned=planned)
    assert made.next([*helped, FAILED], [*planned, Aimed(955, 985)]) is None


@given(
    made=st.lists(
        st.tuples(st.integers(0, 1100), st.booleans(), st.sampled_from([650.0, 700.0, 702.0]), st.booleans()),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_tries_end_whatever_plans_say_and_take(made: list[tuple[int, bool, float, bool]]) -> None:
    """Where the answers come again and again, in turn."""
    tightening, results, planned = Tightening(BUDGET), [ran(700.0, HELPED)], [Aimed(1000, 985)]
    for number in range(200):
        found = tightening.next(results, planned)
        if found is None:
            return
        peak, executed, duration_us, helped = made[number % len(made)]
        results.append(ran(duration_us, HELPED if helped else CALM) if executed else FAILED)
        planned.append(Aimed(found[1], peak))
        while executed and tightening.again(results, planned):
            pass
    raise AssertionError("200 tries were no end")


def test_what_ran_last_without_help_stays_where_it_lies() -> None:
    assert ran_last([*PORTFOLIO, FAILED], 2)
    assert not ran_last(PORTFOLIO, 1)
    assert not ran_last([ran(700.0, HELPED)], 0)
    assert not ran_last(PORTFOLIO, None)
