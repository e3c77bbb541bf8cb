"""Kept results of `bayplan table`: of the entries as they are now, complete, and with a reason wherever they differ.

And what takes long is taken from them, and said to be.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments.reproduction.entry import Entry, entry_names, read_entry
from experiments.reproduction.judge import DIFFERS, FAILED, NO_REASON
from experiments.reproduction.kept import judged_of, kept_cells, kept_of
from experiments.reproduction.pages import page, summary_page
from experiments.reproduction.run import KEPT as FOLDER
from experiments.reproduction.run import Options, Outcome, parameters_hash, run_entry
from experiments.reproduction.score import score_table
from experiments.rows import read_rows, rows_to_compact
from experiments.tables import to_markdown
from solvers.ir import Row
from tests.experiments.reproduction.fakes import squares_entry

KEPT = sorted(FOLDER.glob("*/*.jsonl"))


def complaints(rows: list[Row], entry: Entry, page: str) -> list[str]:
    """What is wrong with kept rows and their page."""
    verdicts = {row.asked["quantity"]: row for row in rows if "quantity" in row.asked}
    wanted = {one.name: one.paper for one in entry.quantities} | {one.claim: None for one in entry.shapes}
    found = (
        [f"rows {sorted(set(wanted) ^ set(verdicts))} are not those of the entry"]
        if set(wanted) != set(verdicts)
        else []
    )
    for name, row in verdicts.items():
        paper = wanted.get(name)
        if row.figures.get("paper") != (None if paper is None else msgspec.to_builtins(paper)):
            found.append(f"{name}: the paper's value is another one in the entry")
        if row.figures["verdict"] == FAILED or (row.figures["verdict"] == DIFFERS and NO_REASON in (row.reason or "")):
            found.append(f"{name}: {row.figures['verdict']} without a known reason ({row.reason})")
        if name.replace("|", "\\|") not in page:
            found.append(f"{name} is not on the page")
    return found


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_rows_are_those_of_their_entry(path: Path) -> None:
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert complaints(read_rows(path), read_entry(path.stem), page) == []


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_pages_name_the_commit_and_the_parameters_that_computed_them(path: Path) -> None:
    """Content may be older than the code; the commit says of when it is."""
    page, rows, entry = path.with_suffix(".md").read_text(encoding="utf-8"), read_rows(path), read_entry(path.stem)
    (commit,) = re.findall(r"^\| commit \| (\w+\+?) \|$", page, re.MULTILINE)
    assert commit in {row.commit for row in rows}
    wanted = None if entry.compute is None else parameters_hash(entry)
    assert {row.asked.get("parameters") for row in rows} == {wanted}, "computed with other parameters: make it again"


def test_every_entry_has_a_kept_result() -> None:
    assert sorted(path.stem for path in KEPT) == sorted(entry_names())
    assert all(path.parent.name == read_entry(path.stem).system for path in KEPT)


def outcomes(system: str | None = None) -> list[Outcome]:
    """What the kept rows of a system say, or of all."""
    found = []
    for name in entry_names():
        entry = read_entry(name)
        if system in (None, entry.system):
            rows = read_rows(FOLDER / entry.system / f"{name}.jsonl")
            found.append(Outcome(name, entry, judged_of(rows), kept=kept_of(rows)))
    return found


@pytest.mark.parametrize("system", ["chameleon", "lynx", "protrain", "smartswap"])
def test_the_summaries_are_what_the_rows_of_all_pages_say(system: str) -> None:
    """Pages may be made anew one by one: the summary must then count their verdicts."""
    assert summary_page(outcomes(system)) == (FOLDER / system / "table.md").read_text()


def test_the_score_is_what_all_rows_say() -> None:
    assert to_markdown([score_table(outcomes())]) == (FOLDER / "score.md").read_text()


def test_a_stale_result_is_complained_about() -> None:
    entry = read_entry("lynx-consistency")
    row = Row(
        experiment="lynx-consistency",
        asked={"quantity": entry.quantities[0].name},
        outcome="ok",
        figures={"verdict": DIFFERS, "paper": {"value": 1.0, "low": None, "high": None}},
        provenance="",
        commit=None,
        seed=0,
        reason=NO_REASON,
    )
    told = complaints([row], entry, "")
    assert len(told) == 4
    assert "are not those of the entry" in told[0]
    assert told[1].endswith("another one in the entry")
    assert "without a known reason" in told[2]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs the entry `squares`, whose cells each leave a line in the test's log, with the test's kept results."""

    def one(kept: bool = True, seed: int = 0, upto: int = 3, **options: Any) -> Outcome:
        raw = squares_entry(parameters={"upto": upto, "log": str(tmp_path / "log")})
        folder = tmp_path / "kept" if kept else None
        entry = msgspec.convert(raw, Entry)
        return run_entry("squares", entry, Options(tmp_path, tmp_path / "cache", folder, seed, **options))

    return one


@pytest.fixture
def computed(tmp_path: Path) -> Callable[[], list[int]]:
    """The numbers whose squares were computed since it was last asked."""

    def numbers() -> list[int]:
        log = tmp_path / "log"
        found = [int(line) for line in log.read_text().split()] if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    return numbers


@pytest.fixture
def keep(tmp_path: Path) -> Callable[..., Path]:
    """Writes an outcome's rows as a kept result, and drops the cache."""

    def one(outcome: Outcome, seconds: float = 50.0) -> Path:
        cells = tuple(msgspec.structs.replace(row, commit="abc") for row in outcome.to_rows())
        rows = [
            msgspec.structs.replace(row, figures={**row.figures, "seconds": seconds}) if "cell" in row.asked else row
            for row in cells
        ]
        path = tmp_path / "kept" / "school" / "squares.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows_to_compact(rows))
        for file in (tmp_path / "cache").rglob("*.json"):
            file.unlink()
        return path

    return one


def test_what_takes_long_is_taken_from_kept_results(
    run: Callable[..., Outcome], keep: Callable[..., Path], computed: Callable[[], list[int]]
) -> None:
    first = run(kept=False)
    keep(first)
    assert computed() == [0, 1, 2]
    for _ in range(2):  # nothing kept becomes a computed result
        outcome = run()
        assert computed() == []
        assert outcome.rows == first.rows and outcome.kept is not None
        assert (outcome.kept.cells, outcome.kept.of, outcome.kept.seconds, outcome.kept.same) == (3, 3, 150.0, True)
        assert (outcome.kept.commits, outcome.commit, outcome.content) == (("abc",), "abc", first.content)
    assert "3 of 3 cells kept from abc (150 s of computing), the same code and inputs" in page(outcome)
    assert "Kept: squares: 3 of 3 cells kept from abc" in summary_page([outcome])
    assert {row.asked["kept"]["same"] for row in outcome.to_rows()} == {True}
    assert all(row.provenance.startswith("arithmetic, kept;") for row in outcome.to_rows())
    assert judged_of(outcome.to_rows()) == outcome.rows and kept_of(outcome.to_rows()) == outcome.kept


def test_what_changed_since_is_said_and_only_what_is_new_is_computed(
    run: Callable[..., Outcome], keep: Callable[..., Path], computed: Callable[[], list[int]]
) -> None:
    first = run(kept=False)
    path, now = keep(first), first.content
    rows = [msgspec.structs.replace(row, asked={**row.asked, "content": "old"}) for row in read_rows(path)]
    path.write_text(rows_to_compact(rows[:-1]))
    computed()
    outcome = run()
    assert computed() == [2]
    assert outcome.kept is not None and not outcome.kept.same and outcome.kept.cells == 2
    assert outcome.content is None, "cells of two contents"
    assert [row.asked["content"] for row in outcome.to_rows() if "cell" in row.asked] == ["old", "old", now]
    assert [cell.kept for cell in outcome.cells] == [True, True, False]
    hows = [row.provenance.split(";")[0] for row in outcome.to_rows() if "cell" in row.asked]
    assert hows == ["arithmetic, kept", "arithmetic, kept", "arithmetic"]
    assert "2 of 3 cells kept from abc (100 s of computing), other code or inputs than these" in page(outcome)
    assert run().kept == outcome.kept and computed() == []


def test_kept_cells_of_other_parameters_are_no_answer(
    run: Callable[..., Outcome], keep: Callable[..., Path], computed: Callable[[], list[int]]
) -> None:
    keep(run(kept=False))
    computed()
    assert run(upto=4).kept is None and computed() == [0, 1, 2, 3]


def test_what_is_quick_fresh_or_of_another_seed_is_computed(
    run: Callable[..., Outcome], keep: Callable[..., Path], computed: Callable[[], list[int]]
) -> None:
    keep(run(kept=False))
    computed()
    assert run(fresh=True).kept is None and computed() == [0, 1, 2]
    assert run().kept is None and computed() == [], "what was computed here comes before what is kept"
    keep(run(kept=False))
    assert run(seed=1).kept is None and computed() == [0, 1, 2]
    keep(run(kept=False), seconds=19.0)
    computed()
    assert run().kept is None and computed() == [0, 1, 2]


def test_a_spoilt_kept_result_and_failed_cells_are_computed(
    run: Callable[..., Outcome], keep: Callable[..., Path], computed: Callable[[], list[int]], tmp_path: Path
) -> None:
    path = keep(run(kept=False))
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]))
    computed()
    assert (run().kept, run().failure, computed()) == (None, None, [0, 1, 2])
    rows = [msgspec.structs.replace(row, outcome="error") for row in run(kept=False).to_rows()]
    path.write_text(rows_to_compact(rows))
    parameters = str(rows[0].asked["parameters"])
    assert kept_cells(tmp_path / "kept", "school", "squares", 0, parameters).cells == {}
