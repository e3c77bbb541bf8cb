"""Layouts executed beside their predictions, on a model that runs in a fraction of a second."""

from pathlib import Path

import pytest

from experiments.layout import kinds as models
from experiments.layout import predicted
from experiments.layout.kinds import CONTEXT, kinds
from experiments.layout.predicted import main, measured, misjudged, random_plan, row_of, solved
from experiments.layout.predicted_table import peak_error, step_error, table_of
from experiments.models import Gpt, GptShape
from experiments.rows import read_rows


def small() -> Gpt:
    return Gpt(GptShape(layers=4, width=128, context=CONTEXT))


def test_steps_and_peaks_are_the_predicted_ones() -> None:
    one = measured("small", small)
    rows = [row_of(one, f"random {seed}", random_plan(one.roomy.problem, seed)) for seed in range(2)]
    rows.append(row_of(one, "search", solved(one, "search"), noise=0.1))
    wrong = misjudged(one.profile, 0)
    assert [block.forward_us for block in wrong.blocks] != [block.forward_us for block in one.profile.blocks]
    rows.append(row_of(one, "search, wrong profile", solved(one, "search", wrong)))
    for row in rows:
        assert row.figures["equal_losses"] and row.figures["departures"] == 0
        assert abs(step_error(row)) <= 0.02 and abs(peak_error(row)) <= 1e-3
    assert rows[2].figures["noise_step_us"] != rows[2].figures["step_us"] and rows[2].figures["noise_equal_losses"]
    assert "4 layouts of 1 models" in table_of(rows).title
    missing = row_of(one, "search", "no layout fits")
    assert missing.outcome == "infeasible" and "no plan" in table_of([missing]).body[0]


def test_rows_and_table_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "gpt", small)
    monkeypatch.setattr(predicted, "SOLVERS", ("search",))
    assert isinstance(kinds()["GPT"](), Gpt)
    main(["--seeds", "1", "--noise", "0", "--models", "GPT", "--out", str(tmp_path)])
    rows = read_rows(tmp_path / "predicted.jsonl")
    assert [row.asked["policy"] for row in rows][:2] == ["random 0", "search"]
    assert all(row.figures for row in rows)
    assert "GPT" in (tmp_path / "predicted.md").read_text() and "error of the step" in capsys.readouterr().out
