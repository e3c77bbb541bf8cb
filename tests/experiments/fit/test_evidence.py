"""Yes and no near the limit: predicted, then run in that much simulated memory."""

import pytest
from click.testing import CliRunner

from experiments.fit.answer import Technique
from experiments.fit.evidence import SWAPPED, Allocator, Case, Program, StageCase, cases, stage_cases, swap_cases
from experiments.fit.evidence.__main__ import main
from experiments.models import GptShape

pytestmark = pytest.mark.usefixtures("plain_sim")
SMALL = (
    Program("GPT", GptShape(layers=2, width=64, context=64, batch=6), "plain"),
    Program("GPT", GptShape(layers=2, width=64, context=64, batch=6), "full"),
)
PLANNED: tuple[Technique, ...] = ("swap", "joint")
ALLOCATORS: list[Allocator] = ["exact", "caching", "expandable"]
SEGMENTS: list[Allocator] = ["caching", "expandable"]


@pytest.mark.parametrize("allocator", ["exact", "caching"])
def test_a_few_configurations_are_told_right(allocator: Allocator) -> None:
    found = list(cases(allocator, SMALL, (0.97, 1.03)))
    assert [case.right for case in found] == [True] * 4, found
    assert max(abs(case.error) for case in found if case.executed) <= (0 if allocator == "exact" else 0.05)


def test_a_plan_runs_where_it_was_said_to_fit() -> None:
    """From the first step on, in that much memory; reserved bytes come out to the byte."""
    small = ("GPT", GptShape(layers=3, width=64, context=64, batch=16))
    found = list(swap_cases("expandable", (small,), (0.75, 1.01)))
    assert [(case.executed, case.right) for case in found] == [(False, True), (True, True)], found
    assert found[1].error == 0


def test_a_shape_s_requests_are_served_where_it_was_said_to_fit() -> None:
    small = ("gpt-300m", 1, 8, 1)
    stages = [StageCase(*small, "flash", "full"), *(StageCase(*small, "unfused", one) for one in PLANNED)]
    found = list(stage_cases("caching", stages, (0.75, 1.01)))
    assert [(case.executed, case.right) for case in found] == [(False, True), (True, True)] * 3, found
    assert all(case.error == 0 for case in found if case.executed)


def test_exact_bytes_are_for_programs() -> None:
    refused = CliRunner().invoke(main, ["--of", "swaps"])
    assert refused.exit_code == 2
    assert "choose --allocator caching or expandable" in refused.output


@pytest.mark.soak
@pytest.mark.parametrize("allocator", SEGMENTS)
def test_twenty_plans_within_a_tenth_of_the_limit(allocator: Allocator) -> None:
    found = list(swap_cases(allocator))
    assert len(found) == 5 * len(SWAPPED)
    assert sum(not case.right for case in found) <= 1, found


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
    case = Case("a program", 100, 1.0, True, False, 105, 100)
    assert not case.right
    assert case.error == pytest.approx(0.05)
