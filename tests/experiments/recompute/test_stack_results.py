"""The kept results of a 13B stage: tables are what rows say, nothing raced, and what was predicted happened."""

import json
from pathlib import Path

import pytest

from experiments.recompute.stack import PLAIN
from experiments.recompute.stack_page import page

RESULTS = Path(__file__).parents[3] / "experiments" / "results" / "stack13b"
ROWS = [json.loads(line) for line in (RESULTS / "rows.jsonl").read_text().splitlines()]


def test_tables_are_what_the_rows_say_and_the_page_names_their_commit() -> None:
    assert page(ROWS) == (RESULTS / "table.md").read_text()
    told = (RESULTS / "README.md").read_text()
    for row in ROWS:
        assert not row["commit"].endswith("+") and row["commit"] in told


def test_steps_and_what_is_hidden_are_as_predicted_and_peaks_within_the_budget() -> None:
    planned = [row for row in ROWS if "predicted" in row]
    assert len(planned) >= 14
    for row in planned:
        ran, told = row["executed"], row["predicted"]
        assert ran["races"] == 0 and ran["peak_bytes"] <= row["budget_bytes"]
        assert ran["exposed_us"] == pytest.approx(told["exposed_us"], abs=0.02)
        assert ran["hidden_us"] == pytest.approx(told["hidden_us"], abs=0.02)


def test_the_plan_that_exposes_least_has_windows_in_each_stage() -> None:
    """One policy for all layers is no better than a plan without windows where memory is short: two are."""
    stages: dict[tuple[str, int], dict[str, float]] = {}
    for row in ROWS:
        if "executed" in row and row["policy"] != PLAIN:
            stages.setdefault((row["cluster"], row["stage"]), {})[row["policy"]] = row["executed"]["exposed_us"]
    for exposed in stages.values():
        assert min(exposed, key=lambda policy: exposed[policy]).startswith("heu")
        assert exposed["checkmate-layer"] < exposed["full"]
    short = stages["lynx-nvlink", 0]
    assert short["heu groups=2"] < short["checkmate-layer"] < short["heu"]
