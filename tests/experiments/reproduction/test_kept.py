"""Kept results of `bayplan table`: of the entries as they are now, complete, and with a reason wherever they differ."""

from pathlib import Path

import msgspec
import pytest

from experiments.reproduction.entry import Entry, read_entry
from experiments.reproduction.judge import DIFFERS, FAILED, NO_REASON
from experiments.rows import read_rows
from solvers.ir import Row

RESULTS = Path(__file__).resolve().parents[3] / "experiments" / "results" / "tables"
KEPT = sorted(RESULTS.glob("*/*.jsonl"))


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
