"""Yes and no near the limit: predicted, then run in that much simulated memory."""

import pytest

from experiments.fit.evidence import PROGRAMS, Allocator, Case, Program, cases
from experiments.models import GptShape

pytestmark = pytest.mark.usefixtures("plain_sim")
SMALL = (
    Program("GPT", GptShape(layers=2, width=64, context=64, batch=6), "plain"),
    Program("GPT", GptShape(layers=2, width=64, context=64, batch=6), "full"),
)
ALLOCATORS: list[Allocator] = ["exact", "caching"]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_few_configurations_are_told_right(allocator: Allocator) -> None:
    found = list(cases(allocator, SMALL, (0.97, 1.03)))
    assert [case.right for case in found] == [True] * 4, found
    assert max(abs(case.error) for case in found if case.executed) <= (0 if allocator == "exact" else 0.05)


@pytest.mark.soak
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_fifty_configurations_within_a_tenth_of_the_limit(allocator: Allocator) -> None:
    found = list(cases(allocator))
    assert len(found) >= 50
    wrong = [case for case in found if not case.right]
    assert len(wrong) <= 1, wrong
    assert {case.executed for case in found} == {True, False}
    assert max(abs(case.error) for case in found if case.executed) <= 0.05


def test_a_case_says_whether_it_was_right() -> None:
    case = Case(PROGRAMS[0], 100, 1.0, True, False, 105, 100)
    assert not case.right
    assert case.error == pytest.approx(0.05)
