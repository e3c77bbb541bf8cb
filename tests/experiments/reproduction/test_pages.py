"""Pages and tables: every figure in its unit, every reason below, nothing about this machine's folders."""

from pathlib import Path

import msgspec
import pytest

from experiments.reproduction.entry import Claim, Entry
from experiments.reproduction.pages import page, show_claim, show_number, summary_page, tables_of
from experiments.reproduction.run import Options, Outcome, run_entry
from tests.experiments.reproduction.fakes import squares_entry, value_entry


@pytest.fixture
def squares(tmp_path: Path) -> Outcome:
    return run_entry("squares", msgspec.convert(squares_entry(), Entry), Options(tmp_path, tmp_path / "cache"))


def test_a_line_for_each_quantity_and_claim(squares: Outcome) -> None:
    verdicts, values, singles = tables_of(squares)
    assert verdicts.body == (
        ("largest", "§1", "4 m²", "4 m²", "+0.0 %", "reproduced"),
        ("sum", "Table 1", "10", "5", "-50.0 %", "differs [1]"),
        ("all", "§2", "-1 to 5 m²", "0 to 4 m²", "+100.0 %, -20.0 %", "within range"),
        ("sixth", "Figure 1", "–", "4 m²", "–", "ours only [2]"),
        ("squares rise", "§3", "–", "at all 2", "–", "shape holds"),
    )
    assert verdicts.note == "[1] They cannot add. [2] an image."
    assert values.head == ("", "squares (m²)")
    assert values.body == (("n 0", "0"), ("n 1", "1"), ("n 2", "4"))
    assert singles.body == (("count", "3"),)


def test_a_page_tells_how_it_was_made(squares: Outcome, tmp_path: Path) -> None:
    text = page(squares)
    for part in (
        "# Squares",
        "`bayplan table squares`",
        "| how obtained | arithmetic |",
        "- n is whole",
        "Worked out by hand",
    ):
        assert part in text
    assert "**Constants fitted to the paper**: None." in text
    assert str(tmp_path) not in text


def test_fitted_constants_are_told(tmp_path: Path) -> None:
    fitted = [{"constant": "efficiency", "value": 0.5, "to": "the sum", "place": "§9"}]
    entry = msgspec.convert(squares_entry(fitted=fitted), Entry)
    assert "- efficiency = 0.5, fitted to the sum (§9)" in page(run_entry("s", entry, Options(tmp_path, tmp_path)))


def test_the_summary_counts_and_lists_what_differs(squares: Outcome, tmp_path: Path) -> None:
    raw = value_entry("stumbling", "values", "sum", parameters={"marker": str(tmp_path / "none")})
    stumbling = run_entry("stumbling", msgspec.convert(raw, Entry), Options(tmp_path, tmp_path / "cache"))
    text = summary_page([squares, stumbling])
    assert "| squares | Figure 1 | arithmetic | 1 | 1 | 1 | 1 | 1 |" in text
    assert "| stumbling | Figure 1 | arithmetic | – | – | – | – | 1 |" in text
    assert "6 in all" in text
    assert "| squares | sum | Table 1 | 10 | 5 | -50.0 % | differs [1] |" in text
    assert "b is 0, below 1: raise it" in page(stumbling)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234567.0, "1,234,567"), (0.012345, "0.01235"), (71.0, "71"), (1.37, "1.37"), (-1000.4, "-1,000")],
)
def test_numbers(value: float, shown: str) -> None:
    assert show_number(value) == shown


def test_claims() -> None:
    assert show_claim(Claim(high=1), "s") == "at most 1 s"
    assert show_claim(Claim(low=70), "%") == "at least 70 %"
    assert show_claim(Claim(low=71, high=94), "%") == "71 to 94 %"
    assert show_claim(Claim(value=0), "") == "0"
