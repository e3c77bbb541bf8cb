"""One document of each format: the score on top, every row with its provenance, and what a name cannot do."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from experiments.reproduction.documents import FORMATS, HEAD, document
from experiments.reproduction.entry import Entry
from experiments.reproduction.run import Options, Outcome, run_entry
from tests.experiments.reproduction.fakes import squares_entry


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    folder = tmp_path_factory.mktemp("documents")
    raw = squares_entry(title="Squares <b>&</b> \x1b[31m more", assumptions=['n, or "m", is whole'])
    raw["quantities"][0]["paper"] = {"value": 4, "derived": "2 × 2, both printed"}
    options = Options(folder, folder / "cache", seed=3)
    return [run_entry(name, msgspec.convert(raw, Entry), options) for name in ("one", "two")]


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_derived_is_told_as_derived(outcomes: list[Outcome], form: str) -> None:
    text = document(outcomes, form)  # type: ignore[arg-type]
    assert "2 × 2, both printed" in text and text.endswith("\n")
    assert str(Path.cwd()) not in text


def test_the_score_comes_first(outcomes: list[Outcome]) -> None:
    assert document(outcomes, "md").startswith("**Score**")
    assert next(iter(json.loads(document(outcomes, "json")))) == "score"
    assert re.search(r"<h2>(.*?)</h2>", document(outcomes, "html"))[1] == "Score"  # type: ignore[index]
    assert document(outcomes[:1], "md").startswith("# Squares")


def test_csv_has_a_line_for_each_row(outcomes: list[Outcome]) -> None:
    lines = list(csv.DictReader(io.StringIO(document(outcomes, "csv"))))
    assert len(lines) == sum(len(outcome.rows) for outcome in outcomes)
    assert tuple(lines[0]) == HEAD
    assert (lines[0]["paper value"], lines[0]["derived"], lines[0]["ours low"]) == ("4.0", "2 × 2, both printed", "4.0")
    assert (lines[1]["verdict"], lines[1]["reason"], lines[1]["deviation"]) == ("differs", "They cannot add", "-0.5")
    assert lines[2]["paper low"] == "-1.0" and lines[2]["paper value"] == ""
    assert {line["provenance"] for line in lines[:5]} == {"arithmetic; bayplan table one --seed 3"}
    assert {line["content"] for line in lines} == {outcomes[0].content}


def test_json_has_the_score_and_all_rows(outcomes: list[Outcome]) -> None:
    told = json.loads(document(outcomes, "json"))
    assert [line["reproduced"] for line in told["score"]] == ["2"]
    assert [len(entry["rows"]) for entry in told["entries"]] == [8, 8]
    assert told["entries"][0]["rows"][0]["figures"]["paper"] == {"value": 4.0, "derived": "2 × 2, both printed"}


class Balanced(HTMLParser):
    """Tags that were opened and not closed; and every address that is not in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_whole_and_alone(outcomes: list[Outcome]) -> None:
    text = document(outcomes, "html")
    parser = Balanced()
    parser.feed(text)
    assert parser.open == [] and parser.addresses == []
    assert "<script" not in text and "http" not in text and "\x1b" not in text
    assert "Squares &lt;b&gt;&amp;&lt;/b&gt; \\x1b[31m more" in text
    assert text.count("<details>") == 2 and "bayplan table two --seed 3" in text
