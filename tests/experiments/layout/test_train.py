"""`bayplan train experiment=protrain`: a model three times as large as the device trains on text, to the same bits."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from experiments.cli import main
from experiments.hardware import read_hardware
from experiments.layout.outcomes import EQUAL, broken, table_of
from experiments.layout.train import tables_of
from experiments.layout.training import Where, decided, parameters_of, train_laid_out, train_plain
from experiments.models import GptShape
from experiments.rows import read_rows
from experiments.tables import to_markdown
from solvers.ir import Row
from tests.experiments.commands.console import call

WORDS = ["train", "experiment=protrain", "steps=5", "model.layers=6", "model.width=128", "model.batch=2"]
FEWER = ["~policies.exact-layout", "~policies.colossal-static"]
ALONE = ["fsdp2=false", "noise=0", "larger.layers=0", "plots=false"]
"""Nothing but the layouts themselves: `ran` has the rest."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("protrain")
    assert main([*WORDS, *FEWER, f"run_dir={directory}"]) == 0
    return directory


def by_policy(directory: Path) -> dict[str, Row]:
    return {str(row.asked["policy"]): row for row in read_rows(directory / "rows.jsonl") if "steps" in row.figures}


def test_states_are_three_times_the_device_and_every_bit_is_plain_training_s(ran: Path) -> None:
    rows = by_policy(ran)
    assert list(rows) == ["plain", "search", "zero3-offload", "fsdp2", "fsdp2-plan"]
    plain = rows["plain"].figures
    assert plain["peak_bytes"] > 3 * plain["budget_bytes"], "it does not train there plainly"
    for name, row in rows.items():
        found = row.figures
        assert row.outcome == "ok", (name, row.reason)
        assert found["states_bytes"] >= 3 * found["budget_bytes"]
        assert found["losses"] == plain["losses"] and found["races"] == 0
        if name != "plain":
            assert all(found[one] for one in EQUAL), name
    assert plain["losses"][-1] < plain["losses"][0]


def test_layouts_stay_within_the_device_as_predicted(ran: Path) -> None:
    rows = by_policy(ran)
    planned = [name for name, row in rows.items() if "predicted_peak_bytes" in row.figures]
    assert "search" in planned
    for name in planned:
        found = rows[name].figures
        assert found["peak_bytes"] <= found["budget_bytes"], name
        assert abs(found["predicted_peak_bytes"] / found["peak_bytes"] - 1) <= 1e-3, name
        assert found["swapped_bytes"] > 0 and found["hidden_us"] > 0 and found["noise_equal"]
        assert found["bound_us"] <= found["objective_us"]
        assert abs(found["predicted_lane_step_us"] / found["lane_step_us"] - 1) <= 0.02, name
        assert found["lane_step_us"] <= found["step_us"]
    departures = rows["fsdp2-plan"].figures["departures"]
    assert any("buffers" in departure for departure in departures)


def test_files_of_a_run(ran: Path) -> None:
    assert (ran / "table.md").read_text() == to_markdown(tables_of(read_rows(ran / "rows.jsonl")))
    for name in ("search-predicted", "search-executed"):
        assert (ran / "reports" / f"{name}.json").is_file() and (ran / "traces" / f"{name}.json").is_file()
    assert (ran / "lanes-search.svg").is_file()


def test_a_device_that_is_too_small_is_an_answer(tmp_path: Path) -> None:
    outcome = call(*WORDS, "times_larger=100", *ALONE, *FEWER, f"run_dir={tmp_path}")
    assert outcome.code == 1
    rows = by_policy(tmp_path)
    assert rows["search"].outcome == "infeasible"
    assert "does not hold the step that is to be measured" in str(rows["search"].reason)
    assert "no plan" in table_of(list(rows.values())).body[1]


def test_a_device_in_which_no_layout_fits_is_told_what_is_needed() -> None:
    shape = GptShape(layers=6, width=128, heads=4, context=64, batch=2, dropout=0.1)
    refused = decided(shape, Where(read_hardware("sim-small")), "search", 16 * parameters_of(shape) // 8, 1 << 30)
    assert isinstance(refused, str) and "bytes are needed" in refused


def test_what_differs_races_or_does_not_fit_is_broken(ran: Path) -> None:
    row = by_policy(ran)["search"]
    assert not broken(row)
    for changed in ({"equal_losses": False}, {"races": 1}, {"peak_bytes": row.figures["budget_bytes"] + 1}):
        assert broken(msgspec.structs.replace(row, figures={**row.figures, **changed}))


def test_wrong_numbers_are_seen() -> None:
    """The comparison is not with itself: another dropout gives other losses."""
    shape = GptShape(layers=2, width=32, heads=2, context=16, batch=2, dropout=0.1)
    where = Where(read_hardware("sim-small"))
    plan = decided(shape, where, "search", 16 * parameters_of(shape) // 3, 1 << 30)
    assert not isinstance(plan, str)
    plain = train_plain(replace(shape, dropout=0.2), where, 4)
    assert train_laid_out(shape, where, 4, plan).losses != plain.losses


def test_thirteen_billion_parameters_are_executed_by_their_shapes(ran: Path) -> None:
    """On one A100 of 80 GiB; the row says that no number was computed."""
    (row,) = (row for row in read_rows(ran / "rows.jsonl") if row.asked["policy"] == "by shapes")
    found = row.figures
    assert row.outcome == "ok" and row.provenance.startswith("sim-shapes, ") and "without numbers" in row.provenance
    assert found["parameters"] == 12_593_448_960
    assert found["states_bytes"] > 2 * found["budget_bytes"] >= 2 * found["peak_bytes"] and found["departures"] == 0
    assert abs(found["predicted_lane_step_us"] / found["lane_step_us"] - 1) <= 0.02
    assert abs(found["predicted_peak_bytes"] / found["peak_bytes"] - 1) <= 1e-3
    assert found["objective_us"] >= found["bound_us"]
