"""Budgets that were hardly meant as they were written: each is told with what it is beside the peak."""

from pathlib import Path

import pytest

from experiments.commands.questions import peak_questions, questions, unit_questions
from tests.experiments.commands.console import call

PEAK = 200_000_000
LAYOUT = ["--shape", "gpt-1.3b", "--microbatch", 4, "--data-parallel", 4, "--hardware", "protrain-a100"]


def test_a_number_without_a_unit_is_questioned_where_it_is_tiny() -> None:
    (sentence,) = unit_questions("5000", 5000, PEAK)
    assert sentence.startswith("the budget of 5000 has no unit, so it is of 5000 bytes (4.88 KiB), 1/40000 of the peak")
    assert not list(unit_questions("5000B", 5000, PEAK))
    assert not list(unit_questions("150000000", 150_000_000, PEAK))
    assert not list(unit_questions("5000", 5000, 6000))
    assert not list(unit_questions("0", 0, PEAK)), "no unit helps"


def test_a_budget_that_asks_nothing_is_questioned() -> None:
    (sentence,) = peak_questions(PEAK, PEAK)
    assert "is not below the peak of 200000000 bytes (190.73 MiB), so nothing has to leave" in sentence
    assert list(questions("200000000", PEAK, PEAK)) == [sentence]
    assert not list(questions("199999999", PEAK - 1, PEAK))


@pytest.mark.parametrize(("budget", "told"), [("5000", "has no unit"), ("900GiB", "so nothing has to leave")])
def test_layouts_ask_too(tmp_path: Path, budget: str, told: str) -> None:
    outcome = call("make", "layout", *LAYOUT, "--budget", budget, "--out", tmp_path / "p.json")
    assert outcome.code == 0 and told in outcome.err


def test_fit_asks_for_the_unit_only(tmp_path: Path) -> None:
    words = ["--shape", "gpt-1.3b", "--microbatch", 1, "--hardware", "protrain-a100", "--technique", "plain"]
    assert "has no unit" in call("fit", *words, "--budget", "5000").err
    assert call("fit", *words, "--budget", "900GiB").err == ""
