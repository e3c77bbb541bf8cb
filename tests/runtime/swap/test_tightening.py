"""Once a portfolio has been tried, its best policy is tried for more of the budget."""

from runtime.swap.portfolio import PolicyChoice
from runtime.swap.report import PolicyResult, SessionCounts
from runtime.swap.tightening import MOST, Tightening, ran_last

BUDGET = 1000
CALM = SessionCounts()


def ran(duration_us: float, counts: SessionCounts = CALM) -> PolicyResult:
    return PolicyResult(choice=PolicyChoice(), generation=1, duration_us=duration_us, counts=counts)


PORTFOLIO = [ran(900.0), ran(700.0), ran(800.0)]
AIMS = [900, 900, 900]
FAILED = PolicyResult(choice=PolicyChoice(), generation=1, reason="the same as greedy-swap")


def test_the_fastest_is_tried_for_nearly_all_of_the_budget_and_kept_if_as_fast() -> None:
    made = Tightening(BUDGET)
    assert made.next(PORTFOLIO, AIMS) == (1, int(MOST * BUDGET))
    results = [*PORTFOLIO, ran(702.0)]
    assert made.best(results) == 3
    assert 3 in made and 1 not in made


def test_one_that_is_slower_or_needs_more_on_demand_is_too_much_and_half_is_tried() -> None:
    for trial in (ran(710.0), ran(699.0, SessionCounts(passive=1)), ran(650.0, SessionCounts(retries=1))):
        made = Tightening(BUDGET)
        made.next(PORTFOLIO, AIMS)
        results = [*PORTFOLIO, trial]
        assert made.best(results) == 1
        assert made.next(results, [*AIMS, 980]) == (1, 940)


def test_clearly_faster_is_better_with_a_passive_swap_too() -> None:
    made = Tightening(BUDGET)
    made.next(PORTFOLIO, AIMS)
    assert made.best([*PORTFOLIO, ran(650.0, SessionCounts(passive=1, fetched=1))]) == 3


def test_there_is_an_end() -> None:
    """After so many tries, where the same plan comes out and little is between, and where all of it is used already."""
    made = Tightening(BUDGET, tries=1)
    assert made.next(PORTFOLIO, AIMS) is not None
    assert made.next([*PORTFOLIO, ran(800.0)], [*AIMS, 980]) is None
    made = Tightening(BUDGET)
    made.next(PORTFOLIO, AIMS)
    assert made.next([*PORTFOLIO, FAILED], [*AIMS, 980]) is None
    assert Tightening(BUDGET).next(PORTFOLIO, [978] * 3) is None
    assert Tightening(BUDGET).next([FAILED], [900]) is None


def test_what_ran_last_without_help_stays_where_it_lies() -> None:
    assert ran_last([*PORTFOLIO, FAILED], 2)
    assert not ran_last(PORTFOLIO, 1)
    assert not ran_last([ran(700.0, SessionCounts(passive=1))], 0)
    assert not ran_last(PORTFOLIO, None)
