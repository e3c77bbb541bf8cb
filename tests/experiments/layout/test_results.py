"""The results that are kept: the table is what the rows say, every bit is equal, budgets are kept."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from experiments.layout import predicted_table
from experiments.layout.outcomes import EQUAL, PLAIN, broken
from experiments.layout.train import tables_of
from experiments.rows import read_rows
from experiments.tables import to_markdown

RESULTS = Path(__file__).parents[3] / "experiments" / "results" / "protrain"
ROWS = read_rows(RESULTS / "rows.jsonl")
FIGURES = {str(row.asked["policy"]): row.figures for row in ROWS}


def test_the_table_and_the_page_are_what_the_rows_say() -> None:
    assert to_markdown(tables_of(ROWS)) == (RESULTS / "table.md").read_text()
    (commit,) = {row.commit for row in ROWS}
    assert commit is not None and not commit.endswith("+") and commit in (RESULTS / "README.md").read_text()
    for name in ("lanes-search.svg", "lanes-zero3-offload.svg"):
        assert ElementTree.parse(RESULTS / name).getroot().tag.endswith("svg")


def test_bits_are_plain_training_s_and_devices_hold_what_was_promised() -> None:
    assert not any(map(broken, ROWS))
    trained = {name: found for name, found in FIGURES.items() if "step_us" in found}
    assert len(trained) == 7
    for name, found in trained.items():
        assert found["states_bytes"] >= 3 * found["budget_bytes"] and found["races"] == 0
        assert name == PLAIN or all(found[one] for one in EQUAL)
        if "predicted_peak_bytes" in found:
            assert found["peak_bytes"] <= found["budget_bytes"]
            assert abs(found["predicted_peak_bytes"] / found["peak_bytes"] - 1) <= 1e-3


def test_what_is_said_of_fsdp2_and_of_the_larger_model() -> None:
    search, fsdp2 = FIGURES["search"], FIGURES["fsdp2"]
    assert search["step_us"] < fsdp2["step_us"] and search["host_bytes"] == fsdp2["host_bytes"]
    larger = FIGURES["by shapes"]
    assert larger["parameters"] > 12e9 and "losses" not in larger and larger["departures"] == 0


def test_steps_are_the_predicted_ones() -> None:
    told = [found for found in FIGURES.values() if "lane_step_us" in found]
    assert len(told) >= 5
    for found in told:
        assert abs(found["predicted_lane_step_us"] / found["lane_step_us"] - 1) <= 0.02


def test_many_layouts_of_several_models_are_predicted() -> None:
    rows = read_rows(RESULTS / "predicted.jsonl")
    assert to_markdown([predicted_table.table_of(rows)]) == (RESULTS / "predicted.md").read_text()
    done = [row for row in rows if row.outcome == "ok"]
    assert len(done) >= 50 and len({row.asked["model"] for row in done}) >= 5
    assert max(abs(predicted_table.step_error(row)) for row in done) <= 0.02
    assert max(abs(predicted_table.peak_error(row)) for row in done) <= 1e-3
    assert all(row.figures["equal_losses"] and row.figures["departures"] == 0 for row in done)
    page = (RESULTS / "README.md").read_text()
    assert all(row.commit is not None and not row.commit.endswith("+") and row.commit in page for row in rows)
