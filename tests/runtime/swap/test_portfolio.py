"""Which policies a session tries."""

import pytest

from runtime.swap.portfolio import PolicyChoice, portfolio
from solvers.ir.errors import InvalidInput


def test_the_named_solver_comes_first_and_all_policies_differ() -> None:
    choices = portfolio("milp-swap", 5)
    assert str(choices[0]) == "milp-swap"
    assert len(set(map(str, choices))) == len(choices) == 10
    told = [choice.tried for choice in choices]
    assert told == ["always"] * 5 + ["either", "varied", "launches", "either", "short"], (
        "others where sizes vary, launches tell or memory is short"
    )


def test_the_paper_s_heuristic_is_tried_in_both_its_forms_beside_capuchin_s() -> None:
    choices = portfolio("greedy-swap", 5)
    assert [str(choice) for choice in choices].count("greedy-swap") == 1
    assert {bool(choice.parameters.get("printed")) for choice in choices} == {True, False}
    assert "capuchin-swap" in map(str, choices)


def test_any_number_of_policies_can_be_asked_for() -> None:
    told = [str(choice) for choice in portfolio("greedy-swap", 40)]
    assert len(told) == len(set(told)) == 40 + 5
    assert len(portfolio("greedy-swap", 1)) == 1 + 5


def test_an_own_portfolio_is_taken_as_it_stands() -> None:
    own = [PolicyChoice(parameters={"layers": 3}), PolicyChoice(solver="milp-swap", time_s=0.5)]
    assert portfolio(own, 5) == tuple(own)


@pytest.mark.parametrize(
    ("solver", "sentence"),
    [
        ("greedy-swop", "greedy-swap"),
        ("dp", "kind 'partition'"),
        ([], "empty"),
        ([PolicyChoice(parameters={"layer": 3})], "layers"),
    ],
)
def test_what_is_no_swap_planner_is_refused_at_once(solver: str | list[PolicyChoice], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        portfolio(solver, 5)
