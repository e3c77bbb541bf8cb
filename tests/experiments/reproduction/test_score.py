"""The score: every row counts once, unexplained differences are seen, and ours only is no score."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments.reproduction.entry import Entry
from experiments.reproduction.run import Options, Outcome, run_entry
from experiments.reproduction.score import score_table
from tests.experiments.reproduction.fakes import squares_entry, value_entry


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Outcome]:
    only = squares_entry(compute=None, how="paper only", why_not="no such machine", parameters={}, system="work")
    bracketed = squares_entry(
        quantities=[{"name": "q", "place": "§1", "unit": "", "of": "squares", "take": "range", "paper": {"value": 3}}]
    )
    unexplained = squares_entry(shapes=[])
    del unexplained["quantities"][1]["because"]
    raws: dict[str, dict[str, Any]] = {
        "squares": squares_entry(), "only": only, "bracketed": bracketed, "unexplained": unexplained,
        "broken": value_entry("broken", "x", parameters={}),
    }  # fmt: skip
    options = Options(tmp_path, tmp_path / "cache")
    return {name: run_entry(name, msgspec.convert(raw, Entry), options) for name, raw in raws.items()}


def lines(outcomes: list[Outcome]) -> list[dict[str, str]]:
    table = score_table(outcomes)
    return [dict(zip(table.head, line, strict=True)) for line in table.body]


def test_each_verdict_has_its_column(made: dict[str, Outcome]) -> None:
    (line,) = lines([made["squares"], made["bracketed"]])
    assert line == {
        "paper": "school", "entries": "2", "rows with the paper's word": "6", "reproduced": "1", "shape holds": "2",
        "bracketed": "1", "within range": "1", "differs, with reason": "1", "paper only, with reason": "–",
    }  # fmt: skip


def test_what_is_wrong_is_seen_only_where_it_is_there(made: dict[str, Outcome]) -> None:
    (line,) = lines([made["unexplained"], made["broken"]])
    assert (line["differs, no reason"], line["failed"], line["differs, with reason"]) == ("1", "1", "–")
    assert "differs, no reason" not in score_table([made["squares"]]).head


def test_the_papers_numbers_against_each_other_reproduce_nothing(tmp_path: Path) -> None:
    outcome = run_entry("one", msgspec.convert(squares_entry(within_paper=True), Entry), Options(tmp_path, tmp_path))
    (line,) = lines([outcome])
    assert (line["reproduced"], line["shape holds"], line["within range"]) == ("–", "–", "–")
    assert (line["consistent within the paper"], line["differs, with reason"]) == ("3", "1")


def test_what_is_read_from_kept_results_is_marked(tmp_path: Path) -> None:
    outcome = run_entry("one", msgspec.convert(squares_entry(reread=True), Entry), Options(tmp_path, tmp_path))
    assert outcome.how == "arithmetic, kept" and "1 entries are of kept cells or rows" in score_table([outcome]).note
    assert all(row.provenance.startswith("arithmetic, kept;") for row in outcome.to_rows())


def test_claims_of_our_own_are_no_score(tmp_path: Path) -> None:
    shapes = [
        {"check": "monotone", "claim": "up", "place": "ours", "of": "squares", "direction": "rising"},
        {"check": "monotone", "claim": "down", "place": "ours", "of": "squares", "direction": "falling"},
    ]
    raw = squares_entry(shapes=shapes)
    outcome = run_entry("one", msgspec.convert(raw, Entry), Options(tmp_path, tmp_path / "cache"))
    (line,) = lines([outcome])
    assert (line["shape holds"], line["rows with the paper's word"]) == ("–", "3")
    assert "differs, no reason" not in line, "what we claim ourselves is no difference to a paper"
    note = score_table([outcome]).note
    assert "3 more rows are ours only, or claims of our own." in note
    assert "Claims of our own that do not hold: one: down (differs)." in note and "one: up" not in note


def test_systems_are_summed(made: dict[str, Outcome]) -> None:
    school, work, both = lines([made["squares"], made["only"]])
    assert [one["paper"] for one in (school, work, both)] == ["school", "work", "all"]
    assert work["paper only, with reason"] == both["paper only, with reason"] == "5"
    for column in ("entries", "rows with the paper's word"):
        assert int(school[column]) + int(work[column]) == int(both[column])


def test_derived_numbers_are_counted(tmp_path: Path) -> None:
    raw = squares_entry()
    raw["quantities"][0]["paper"] = {"value": 4, "derived": "2 times 2"}
    outcome = run_entry("one", msgspec.convert(raw, Entry), Options(tmp_path, tmp_path / "cache"))
    assert "1 of the paper's numbers are derived from printed ones, and marked." in score_table([outcome]).note
