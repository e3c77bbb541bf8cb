"""A small race: every row is there, sessions keep their budgets, and what is refused is a row, too."""

from pathlib import Path

import pytest

from experiments.recompute.__main__ import main
from experiments.recompute.models import TINY
from experiments.recompute.race import Ran, run
from experiments.recompute.ways import Way
from tests.accelerators import prepare_sim, prepared

REFUSED = prepare_sim()
pytestmark = [pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED)), pytest.mark.usefixtures("plain_sim")]


def test_the_command_writes_rows_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--out", str(tmp_path), "--models", "gpt", "--shares", "0.9", "--tiny"])
    rows = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert len(rows) == 1 + 4 + 4 + 2 + 3
    assert len(capsys.readouterr().out.splitlines()) == len(rows)
    table = (tmp_path / "table.md").read_text()
    assert "| gpt | 90% | heu | " in table and "checkpoint" in table


def test_a_session_says_what_it_predicted_and_took() -> None:
    device = prepared("sim")
    plain = run("gpt", Way("plain"), TINY, device)
    assert plain.peak_bytes is not None and plain.step_us is not None
    row = run("gpt", Way("heu", "heu", 0.9), TINY, device, plain)
    assert row.error is None and row.peak_bytes is not None and row.predicted_peak_bytes is not None
    assert row.peak_bytes <= row.predicted_peak_bytes <= 0.9 * plain.peak_bytes
    assert row.step_us is not None and row.step_us > plain.step_us


def test_a_refusal_is_a_row_with_the_least_budget() -> None:
    device = prepared("sim")
    plain = Ran(model="gpt", way="plain", step_us=1.0, peak_bytes=1000)
    row = run("gpt", Way("heu", "heu", 0.5), TINY, device, plain)
    assert row.error is not None and "the budget is 500 bytes" in row.error
    assert row.least_bytes is not None and row.least_bytes > 500
