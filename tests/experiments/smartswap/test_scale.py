"""The page of large swap problems: rows that go on where they ended, and what is kept of them."""

import json
from pathlib import Path

import pytest

from experiments.smartswap import scale

KEPT = Path(__file__).parent.parent.parent.parent / "experiments" / "results" / "swap_scale"


def test_cells_are_kept_and_none_is_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "CASES", {name: scale.CASES[name] for name in ("nested, 500", "crossing, 500")})
    call = ["scale", "--out", str(tmp_path), "--time", "0.5"]
    monkeypatch.setattr("sys.argv", [*call, "--only", "nested"])
    scale.main()
    first = json.loads((tmp_path / "rows.json").read_text())
    assert list(first) == ["nested, 500"]
    row = first["nested, 500"]
    assert row["base_us"] < row["bound_us"] <= row["objective_us"] <= row["prefetch_us"]
    monkeypatch.setattr("sys.argv", call)
    scale.main()
    both = json.loads((tmp_path / "rows.json").read_text())
    assert both["nested, 500"] == row
    assert scale.table(both) == (tmp_path / "table.md").read_text()


def test_the_kept_page_keeps_the_promised_gaps() -> None:
    rows = json.loads((KEPT / "rows.json").read_text())
    assert list(rows) == list(scale.CASES)
    assert scale.table(rows) in (KEPT / "README.md").read_text()
    for name, row in rows.items():
        assert row["objective_us"] <= min(row["greedy_us"], row["prefetch_us"], row["capuchin_us"]), name
