"""Bytes as text: exact, and read back as written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.ir import InvalidInput
from solvers.ir.amounts import UNITS, parse_budget, parse_bytes, show_bytes


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_whole_number_of_units_is_exact(count: int, unit: str) -> None:
    amount = count * UNITS[unit]
    if amount > 2**53:
        with pytest.raises(InvalidInput, match="more than 2"):
            parse_bytes(f"{count}{unit}", "--budget")
    else:
        assert parse_bytes(f"{count}{unit}", "--budget") == amount


@given(st.integers(0, 2**53), st.integers(0, 10_000))
def test_a_percentage_rounds_down(peak: int, hundredths: int) -> None:
    text = f"{hundredths // 100}.{hundredths % 100:02d}%"
    assert parse_budget(text, peak) == peak * hundredths // 10_000


@given(st.integers(0, 2**53))
def test_what_is_shown_begins_with_the_exact_amount(amount: int) -> None:
    assert parse_bytes(show_bytes(amount).split(" bytes")[0], "x") == amount


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_a_sentence(text: str) -> None:
    try:
        assert 0 <= parse_budget(text, 2**53) <= 2**53 * 10_000
    except InvalidInput as error:
        assert repr(text) in str(error)


@pytest.mark.parametrize(
    ("text", "meant"), [("55", "55%"), ("0.55", "55%"), ("0.8", "80%"), ("100", "100%"), ("1", "1%"), ("7.5", "7.5%")]
)
def test_a_budget_without_a_unit_is_refused_with_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=f"budget is '{text}', a number without a unit: write {meant} for a share"):
        parse_budget(text, 2**30, "budget")


def test_budgets_of_few_bytes_are_budgets_all_the_same() -> None:
    assert parse_budget("55B", 2**30) == 55
    assert parse_budget("101", 2**30) == 101
    assert parse_budget("0", 2**30) == 0
    assert parse_bytes("55", "--link") == 55


def test_readable_sizes() -> None:
    assert show_bytes(None) == "unknown"
    assert show_bytes(1023) == "1023 bytes"
    assert show_bytes(1536) == "1536 bytes (1.50 KiB)"
    assert show_bytes(8 << 30) == "8589934592 bytes (8.00 GiB)"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("20M", "did you mean 20MiB?"),
        ("8 g", "did you mean 8GiB?"),
        ("99999999999999999999TiB", "which is too large, more than 2^53 bytes: give less"),
        ("9" * 120, "give bytes"),
    ],
)
def test_amounts_that_are_nearly_right_are_told_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(meant)):
        parse_budget(text, 10**9)
