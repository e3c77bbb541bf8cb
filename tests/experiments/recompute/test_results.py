"""The results that are kept: tables are what rows say, every bit is equal, and what was predicted happened."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from experiments.recompute.outcomes import EQUAL, PLAIN, broken, tables_of
from experiments.rows import read_rows
from experiments.tables import to_markdown

RESULTS = Path(__file__).parents[3] / "experiments" / "results" / "lynx_tp2"
ROWS = read_rows(RESULTS / "rows.jsonl")
MIXED = read_rows(RESULTS / "bfloat16.jsonl")
OTHERS = {name: read_rows(RESULTS / f"{name}.jsonl") for name in ("tp1", "tp4")}
FIGURES = {str(row.asked["policy"]): row.figures for row in ROWS}


def test_tables_and_page_are_what_the_rows_say() -> None:
    assert to_markdown(tables_of(ROWS)) == (RESULTS / "table.md").read_text()
    assert to_markdown(tables_of(MIXED)) == (RESULTS / "bfloat16.md").read_text()
    for name, rows in OTHERS.items():
        assert to_markdown(tables_of(rows)) == (RESULTS / f"{name}.md").read_text()
    for commit in {row.commit for row in [*ROWS, *MIXED, *OTHERS["tp1"], *OTHERS["tp4"]]}:
        assert commit is not None and not commit.endswith("+") and commit in (RESULTS / "README.md").read_text()
    assert ElementTree.parse(RESULTS / "lanes.svg").getroot().tag.endswith("svg")


def test_bits_are_equal_and_predictions_came_true() -> None:
    assert not any(map(broken, ROWS))
    ran = {name: found for name, found in FIGURES.items() if name != PLAIN and "step_us" in found}
    assert len(ran) == 9
    for found in ran.values():
        assert found["steps"] == 20 and all(found[name] for name in EQUAL)
        assert abs(found["predicted_step_us"] - found["step_us"]) < 0.01
        assert found["predicted_peak_bytes"] == found["peak_bytes"]
        assert found["hidden_exact"]


def test_mixed_precision_with_two_microbatches_in_flight() -> None:
    assert not any(map(broken, MIXED))
    ran = [row.figures for row in MIXED if row.asked["policy"] != PLAIN and row.outcome == "ok"]
    assert len(ran) == 4
    for found in ran:
        assert found["steps"] == 20 and all(found[name] for name in EQUAL) and found["hidden_exact"]
        assert abs(found["predicted_step_us"] - found["step_us"]) < 0.02
        assert found["predicted_peak_bytes"] == found["peak_bytes"]


def test_on_one_device_and_on_four_the_bits_are_equal_and_peaks_as_predicted() -> None:
    for rows in OTHERS.values():
        assert not any(map(broken, rows))
        for row in rows:
            found = row.figures
            if "predicted_step_us" not in found:
                continue
            assert found["steps"] == 20 and all(found[name] for name in EQUAL) and found["hidden_exact"]
            assert abs(found["predicted_step_us"] - found["step_us"]) < 0.02
            assert found["predicted_peak_bytes"] == found["peak_bytes"]


def test_plans_from_wrong_profiles_are_predicted_and_cost_little() -> None:
    for found in (found for found in FIGURES.values() if "wrong_steps_us" in found):
        steps = found["wrong_steps_us"]
        assert len(steps) == 5 and max(steps) < 1.005 * found["step_us"]
        for step, predicted in zip(steps, found["wrong_predicted_steps_us"], strict=True):
            assert abs(predicted - step) < 0.02


def test_objectives_are_what_is_executed_and_no_window_is_planned_that_is_not_there() -> None:
    heu, checkmate, mixed = (FIGURES[name] for name in ("heu", "checkmate-layer", "heu-2"))
    assert heu["objective_us"] == checkmate["objective_us"] and heu["step_us"] == checkmate["step_us"]
    assert mixed["step_us"] < checkmate["step_us"] and round(mixed["hidden_us"]) == 913
    for found in (heu, checkmate, mixed):  # the problem's microseconds are rounded up, operator by operator
        assert found["late_us"] == 0 and found["exposed_us"] <= found["objective_us"] < 1.01 * found["exposed_us"]
