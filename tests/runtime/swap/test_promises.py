"""Which delays count, and where few swaps are worth a try."""

from dataclasses import replace

import pytest

from runtime.swap.portfolio import PolicyChoice
from runtime.swap.promises import launches_tell, promised, stalled
from runtime.swap.report import PolicyResult, SessionCounts

FEW, MANY = (
    PolicyResult(choice=PolicyChoice(), generation=1, base_us=1000, objective_us=1000 + delay_us, swaps=swaps)
    for swaps, delay_us in ((5, 300), (20, 100))
)


def ran(result: PolicyResult, stalled_us: float) -> PolicyResult:
    """As measured where each launch takes 5 us."""
    counts = SessionCounts(swapped_out=result.swaps, swapped_in=result.swaps)
    return replace(result, duration_us=1000 + 10.0 * result.swaps + stalled_us, counts=counts)


@pytest.mark.parametrize(("stalled_us", "share", "best"), [(0.0, 0.0, FEW), (100.0, 0.25, FEW), (400.0, 1.0, MANY)])
def test_delays_count_as_far_as_they_were_measured(stalled_us: float, share: float, best: PolicyResult) -> None:
    """Where the host is behind, a device that waits for a copy loses no time: only launches tell policies apart."""
    found = stalled([ran(FEW, stalled_us), ran(MANY, 0.0)], 5.0)
    assert found == share
    assert min((FEW, MANY), key=lambda result: promised(result, found, 5.0, 0.0)) == best


def test_policies_are_compared_by_one_time() -> None:
    """The first of a generation knows the iteration by passive swaps alone: it promises no less for that."""
    early = replace(FEW, base_us=3000, objective_us=3300)
    alone, beside = (promised(early, 1.0, 5.0, 0.0, base_us) for base_us in (None, 1000))
    assert beside == promised(FEW, 1.0, 5.0, 0.0) > alone


def test_where_nothing_was_measured_all_that_was_promised_counts() -> None:
    assert stalled([FEW, MANY], 5.0) == stalled([], 5.0) == 1.0


def test_launches_tell_if_those_of_every_policy_take_long() -> None:
    assert launches_tell([ran(FEW, 0.0), ran(MANY, 0.0)], 5.0)
    assert not launches_tell([ran(FEW, 9000.0), ran(MANY, 0.0)], 5.0), "50 of 10,050 us"
    assert not launches_tell([FEW], 5.0) and not launches_tell([ran(FEW, 0.0)], 0.0)
