"""SmartSwap's Figure 7 at its length: 5,000 steps, a validation every 200, overflows, 64/80 of the memory."""

from pathlib import Path

import pytest

from experiments.rows import read_rows
from experiments.stability import train

pytestmark = pytest.mark.soak


def test_five_thousand_steps_in_a_session_lose_not_a_bit(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train.main(["experiment=stability", "policies=[features,features_alone,index]", f"run_dir={folder}"]) == 0
    rows = {str(row.asked["policy"]): row for row in read_rows(folder / "rows.jsonl")}
    found = rows["features"].figures
    assert (rows["features"].outcome, found["steps"], found["validations"]) == ("ok", 5000, 25)
    assert found["equal_losses"] and found["equal_validations"] and found["equal_parameters"]
    assert found["skipped"] == rows["unlimited"].figures["skipped"] > 20
    assert found["peak_bytes"] <= rows["features"].asked["budget_bytes"]
    for policy in ("features_alone", "index"):  # without the guard
        ends = rows[policy].figures
        assert ends.get("failed_at", 5000) <= 201 or ends.get("first_difference", 5000) <= 201
