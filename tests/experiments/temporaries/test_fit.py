"""Rules of kernels' temporaries: exact sums are found again, others are near and remembered."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.temporaries.fit import FRACTIONS, Call, rule_of, takes, whole_blocks
from runtime.device.temporaries import Rule, Term, about_rules, plain_rules, read_rules, write_rules
from solvers.ir.errors import InvalidInput

SIZES = st.lists(st.integers(1, 1 << 24), min_size=3, max_size=3).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.lists(SIZES, min_size=4, max_size=8, unique=True), st.sampled_from(FRACTIONS), st.integers(0, 2))
def test_a_part_of_one_size_is_found_again(sizes: list[tuple[int, ...]], part: Fraction, place: int) -> None:
    """Whatever rule comes out tells the truth of every measured call, and remembers nothing."""
    calls = [Call(one, whole_blocks(part * one[place])) for one in sizes]
    rule = rule_of(calls)
    assert rule.farthest_bytes == 0 and rule.exact == ()
    assert all(takes(rule.terms, call.sizes) == call.took_bytes for call in calls)


def test_two_parts_are_found_again_and_hold_for_other_sizes() -> None:
    """A result padded twice over, and a copy of the weights."""
    known = [(4096, 1 << 20, 3000), (9000, 1 << 22, 5000), (70000, 1 << 21, 3000), (512, 1 << 18, 90000)]

    def took(sizes: tuple[int, ...]) -> int:
        return whole_blocks(2 * sizes[1]) + whole_blocks(sizes[0])

    rule = rule_of(Call(sizes, took(sizes)) for sizes in known)
    assert {tuple(term) for term in rule.terms} == {(1, 2, 1), (0, 1, 1)}
    assert takes(rule.terms, (12345, 6789012, 1)) == took((12345, 6789012, 1))


def test_what_is_no_sum_is_remembered_and_bounded() -> None:
    """A buffer of a library that stops growing: others are taken to need the most that was seen."""
    calls = [Call((1 << size,), took) for size, took in ((10, 512), (16, 70656), (20, 132096), (24, 135168))]
    rule = rule_of(calls)
    assert rule.terms == (Term(None, 135168),) and rule.farthest_bytes == 134656
    assert dict(rule.exact) == {call.sizes: call.took_bytes for call in calls}


def test_what_nearly_grows_with_a_size_is_taken_to_grow() -> None:
    rule = rule_of([Call((1 << 20,), 1_500_000), Call((1 << 22,), 5_000_192), Call((1 << 23,), 9_000_448)])
    assert rule.terms[0].place == 0 and 0.9 < takes(rule.terms, (1 << 26,)) / (8 * 9_000_448) < 1.1


def test_one_call_says_nothing_about_growth_and_the_most_of_equal_sizes_counts() -> None:
    assert rule_of([Call((1024,), 2048)]) == Rule((Term(None, 2048),), 1, 0, (((1024,), 2048),))
    assert rule_of([Call((1024,), 0), Call((1024,), 512)]).exact == (((1024,), 512),)
    assert rule_of([Call((1024,), 0), Call((2048,), 0)]) == Rule((), 2, 0)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    rules = {"mm: a": Rule((Term(None, 512), Term(0, 1, 2)), 3, 0), "b": Rule((Term(1, 2),), 2, 8, (((1, 2), 3),))}
    write_rules(tmp_path / "table.json", rules, {"torch": "2.13"})
    assert read_rules(tmp_path / "table.json") == rules and about_rules(tmp_path / "table.json") == {"torch": "2.13"}
    assert plain_rules(rules)["b"] == ([(1, 2, 1)], [([1, 2], 3)])
    (tmp_path / "table.json").write_text(json.dumps({"rules": {"a": {}}}))
    with pytest.raises(InvalidInput, match="no table of kernels' temporaries"):
        read_rules(tmp_path / "table.json")


def test_the_shipped_table_says_how_it_was_made() -> None:
    """Its residuals are its own: the terms of every rule, asked of the calls that it remembers."""
    about = about_rules()
    assert about["command"] == "python -m experiments.temporaries" and about["threads"] == 1
    rules = read_rules()
    assert len(rules) > 250
    for rule in rules.values():
        errors = [abs(takes(rule.terms, sizes) - took) for sizes, took in rule.exact]
        assert max(errors, default=0) == rule.farthest_bytes
