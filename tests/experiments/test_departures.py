"""Where steps did not follow their plan, in words that need no knowledge of the engine."""

from dataclasses import fields, replace

import pytest

from experiments.departures import in_words, of_session
from runtime.recompute import RecomputeReport
from runtime.swap import SwapCounts
from solvers.ir import Status

ZEROS = dict.fromkeys((field.name for field in fields(SwapCounts)), 0)
AS_PLANNED = {"departure": None, **dict.fromkeys(("planned", "swapped_out", "swapped_in"), 3)}
OPERATORS = dict.fromkeys(("operators", "operators_planned", "operators_followed"), 10)
PLANNED = SwapCounts(**{**ZEROS, **AS_PLANNED, **OPERATORS, "difference": None})  # type: ignore[arg-type]
OTHER = replace(PLANNED, departure="operator 4: the plan has mm, addmm ran")


def test_as_planned_is_nothing_to_tell() -> None:
    assert in_words([]) is None
    assert in_words([PLANNED]) is None
    assert in_words([PLANNED] * 3) is None


def test_a_session_tells_what_it_did_otherwise() -> None:
    counts = {field.name: 0 for field in fields(RecomputeReport)}
    report = RecomputeReport(**{**counts, "solver": "joint", "status": Status.FEASIBLE, "swapped_out": 9})  # type: ignore[arg-type]
    assert of_session(report) is None
    assert of_session(replace(report, refused=2, replanned=1)) == (
        "not as planned: 2 storages could not leave; 1 plans took more than the budget and were made again"
    )


def test_the_first_of_several_steps_creates_states_and_may_differ() -> None:
    assert in_words([OTHER, PLANNED]) is None
    assert in_words([OTHER]) == (
        "not as planned in 1 of 1 steps, last in step 1: operator 4: the plan has mm, addmm ran "
        "(where operators depend on data, use runtime.swap.session)"
    )


def test_the_last_one_is_told_and_how_many_there_were() -> None:
    late = replace(PLANNED, fetched=2)
    said = in_words([PLANNED, OTHER, PLANNED, late, PLANNED])
    assert said == (
        "not as planned in 2 of 4 steps, last in step 4: 2 of the tensors that had left were needed before the plan "
        "had them back"
    )


@pytest.mark.parametrize(
    ("count", "told"),
    [
        ("cancelled", "1 of the tensors that had left were needed before the plan had them back"),
        ("early", "1 of the tensors that had left were needed before the plan had them back"),
        ("postponed", "1 found no memory to come back to at their time"),
        ("refused", "1 could not leave"),
        ("left_out", "1 were still out at the end"),
        ("swapped_out", "of 3 planned swaps 1 tensors left and 3 came back"),
        ("operators", "of 10 planned operators 10 ran in their order, and 1 in all"),
        ("operators_followed", "of 10 planned operators 1 ran in their order, and 10 in all"),
    ],
)
def test_each_count_that_departs_has_words(count: str, told: str) -> None:
    counts = replace(PLANNED, **{count: 1})  # type: ignore[arg-type]
    assert not counts.as_planned
    said = in_words([counts])
    assert said is not None and said.endswith(told)


def test_after_a_warm_up_no_step_is_left_out_and_numbers_go_on() -> None:
    said = in_words([OTHER, PLANNED], warm_up=2)
    assert said is not None and said.startswith("not as planned in 1 of 2 steps, last in step 3: ")
