"""The long ones: a training of hundreds of steps under a plan, and the whole grid of the demo."""

from pathlib import Path

import pytest

from experiments import train
from experiments.compare import main as compare
from experiments.figures import figures_of
from experiments.rows import read_rows

pytestmark = pytest.mark.soak


def test_five_hundred_steps_under_a_plan_lose_not_a_bit(tmp_path: Path) -> None:
    assert train.main(["experiment=train", "steps=500", f"run_dir={tmp_path / 'run'}"]) == 0
    plain, planned = (figures_of(row.figures) for row in read_rows(tmp_path / "run" / "rows.jsonl"))
    assert planned.losses is not None
    assert len(planned.losses) == 500
    assert planned.losses == plain.losses
    assert planned.equal_parameters
    assert planned.peak_bytes is not None
    assert planned.budget_bytes is not None
    assert planned.peak_bytes <= planned.budget_bytes


def test_the_whole_grid_keeps_its_budgets_and_its_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(["experiment=demo_sweep", "-m", f"run_dir={tmp_path / 'run'}"]) == 0
    rows = read_rows(tmp_path / "run" / "rows.jsonl")
    assert len(rows) == 7 * 4 * 3
    infeasible = [row for row in rows if row.outcome == "infeasible"]
    assert {row.asked["problem.budget_fraction"] for row in infeasible} == {0.3}
    assert all(figures_of(row.figures).least_budget_bytes for row in infeasible)
    for row in rows:
        figures = figures_of(row.figures)
        if row.outcome == "ok" and figures.budget_bytes is not None and figures.peak_bytes is not None:
            assert figures.peak_bytes <= figures.budget_bytes
            assert figures.equal_losses
    assert "The best plans' step time never falls as the budget shrinks or the link slows." in capsys.readouterr().out
