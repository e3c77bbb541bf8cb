"""The results that are kept: tables are what rows say, every bit is equal, and memory ends where it was said to."""

import json
from itertools import product
from pathlib import Path

from experiments.ranks.exactness import holds, plans, table
from experiments.ranks.large import Plan, arithmetic, run_table, stage_table
from experiments.ranks.outcomes import equal_in_all, table_of
from experiments.ranks.settings import STYLES
from experiments.rows import read_rows
from experiments.tables import to_markdown

RESULTS = Path(__file__).parents[3] / "experiments" / "results" / "ranks"
CARRIERS = ("threads", "processes")
NAMES = ["2 TiB each", "exactly the arithmetic's", "a block less on rank 0", "a block less on rank 8"]


def test_the_styles_are_equal_in_all() -> None:
    rows = read_rows(RESULTS / "rows.jsonl")
    assert [(row.asked["carrier"], row.asked["style"]) for row in rows] == list(product(CARRIERS, STYLES))
    assert all(map(equal_in_all, rows))
    assert to_markdown([table_of(row) for row in rows]) == (RESULTS / "table.md").read_text()


def test_processes_agree_with_threads_in_every_number() -> None:
    rows = read_rows(RESULTS / "rows.jsonl")
    for thread, process in zip(rows[: len(STYLES)], rows[len(STYLES) :], strict=True):
        assert thread.figures["races"] == 0 and process.figures["races"] is None
        assert {**thread.figures, "races": None} == process.figures


def test_the_large_model_ends_where_it_was_said_to() -> None:
    rows = [json.loads(line) for line in (RESULTS / "large.jsonl").read_text().splitlines()]
    assert [row["outcome"] for row in rows] == ["ok", "ok", "out-of-memory", "out-of-memory"]
    assert rows[0]["wall_s"] <= 120 and rows[0]["resident_bytes"] < 4e9
    said = [arithmetic(Plan(), rank // Plan().tensor).peak for rank in range(Plan().ranks)]
    assert rows[0]["peak_bytes"] == rows[1]["peak_bytes"] == rows[1]["capacity_bytes"] == said
    text = stage_table(Plan(), rows[0]) + "\n" + run_table(rows, NAMES)
    assert text == (RESULTS / "large.md").read_text()
    assert text.strip() in (RESULTS / "README.md").read_text()
    page = (RESULTS / "README.md").read_text()
    assert all(f"{rows[0][name]:,}" in page for name in ("records", "estimated_kernels", "unmeasured_kernels"))
    for row in rows:
        assert not row["commit"].endswith("+") and row["commit"] in (RESULTS / "README.md").read_text()


def test_the_arithmetic_held_on_plans_that_nobody_tuned_it_for() -> None:
    rows = [json.loads(line) for line in (RESULTS / "exactness.jsonl").read_text().splitlines()]
    assert [Plan(**row["plan"])._replace(capacity_bytes=Plan().capacity_bytes) for row in rows] == plans()
    assert all(map(holds, rows)) and sum(map(bool, map(limits_tried, rows))) == 3
    assert table(rows) == (RESULTS / "exactness.md").read_text()
    page = (RESULTS / "README.md").read_text()
    assert f"[{len(rows)} plans]" in page and str(sum(len(row["found_bytes"]) for row in rows)) in page
    for row in rows[::9]:  # what is kept is what it says today
        plan = Plan(**row["plan"])
        assert row["arithmetic_bytes"] == [arithmetic(plan, stage).peak for stage in range(plan.pipeline)]


def limits_tried(row: dict[str, list[str]]) -> list[str]:
    return row["a_block_less"]
