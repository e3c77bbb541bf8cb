"""The results that are kept: tables are what rows say, every bit is equal, and memory ends where it was said to."""

import json
from pathlib import Path

from experiments.ranks.large import Plan, run_table, stage_table
from experiments.ranks.outcomes import equal_in_all, table_of
from experiments.ranks.settings import STYLES
from experiments.rows import read_rows
from experiments.tables import to_markdown

RESULTS = Path(__file__).parents[3] / "experiments" / "results" / "ranks"
NAMES = ["2 TiB each", "exactly these peaks", "a block less on rank 0", "a block less on rank 8"]


def test_the_styles_are_equal_in_all() -> None:
    rows = read_rows(RESULTS / "rows.jsonl")
    assert [row.asked["style"] for row in rows] == list(STYLES)
    assert all(map(equal_in_all, rows))
    assert to_markdown([table_of(row) for row in rows]) == (RESULTS / "table.md").read_text()


def test_the_large_model_ends_where_it_was_said_to() -> None:
    rows = [json.loads(line) for line in (RESULTS / "large.jsonl").read_text().splitlines()]
    assert [row["outcome"] for row in rows] == ["ok", "ok", "out-of-memory", "out-of-memory"]
    assert rows[0]["wall_s"] <= 120 and rows[0]["resident_bytes"] < 4e9
    text = stage_table(Plan(), rows[0]) + "\n" + run_table(rows, NAMES)
    assert text == (RESULTS / "large.md").read_text()
    assert text.strip() in (RESULTS / "README.md").read_text()
    page = (RESULTS / "README.md").read_text()
    assert all(f"{rows[0][name]:,}" in page for name in ("records", "estimated_kernels", "unmeasured_kernels"))
    for row in rows:
        assert not row["commit"].endswith("+") and row["commit"] in (RESULTS / "README.md").read_text()
