"""Training under a plan and without: the same losses, less memory."""

from pathlib import Path

import pytest

from experiments.figures import Figures, figures_of
from experiments.rows import read_rows
from experiments.train import loss_table, losses_csv, main
from runtime.device.native import why_missing
from solvers.ir import InvalidInput, Row
from tests.experiments.tiny import tiny_overrides


@pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
def test_training_under_a_plan_learns_the_same_in_less_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["experiment=train", "steps=30", "model.learning_rate=0.01", *tiny_overrides(tmp_path)]
    assert main([*words, f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    assert "- steps=30" in (tmp_path / "run" / ".hydra" / "overrides.yaml").read_text()
    plain, planned = (figures_of(row.figures) for row in read_rows(tmp_path / "run" / "rows.jsonl"))
    assert planned.losses == plain.losses and planned.equal_parameters
    assert plain.losses is not None and len(plain.losses) == 30
    assert plain.losses[-1] < plain.losses[0] - 1  # nats: it learns
    assert planned.budget_bytes is not None and planned.peak_bytes is not None and plain.peak_bytes is not None
    assert planned.peak_bytes <= planned.budget_bytes < plain.peak_bytes
    assert len((tmp_path / "run" / "losses.csv").read_text().splitlines()) == 31
    assert (tmp_path / "run" / "losses.svg").stat().st_size > 1000
    printed = capsys.readouterr().out
    assert "Loss (nats per byte)" in printed and "What happened" in printed


def test_training_without_a_solver_is_refused() -> None:
    with pytest.raises(InvalidInput, match="choose one, as in solver=milp-swap"):
        main(["solver=[]"])
    with pytest.raises(InvalidInput, match="sweep with bayplan compare -m"):
        main(["-m"])
    with pytest.raises(InvalidInput, match="call it once for each value"):
        main(["experiment=ranks", "-m", "seed=0,1"])


def rows() -> list[Row]:
    losses = {"unlimited": [3.0, 2.0, 1.5], "milp-swap": [3.0, 2.0, 1.5], "none": None}
    return [
        Row(
            experiment="e",
            asked={"policy": policy},
            outcome="ok",
            figures=Figures(losses=values).to_raw(),
            provenance="",
            commit=None,
            seed=0,
        )
        for policy, values in losses.items()
    ]


def test_losses_are_shown_a_column_for_each_policy_that_has_them() -> None:
    assert losses_csv(rows()) == "step,unlimited,milp-swap\n1,3.0,3.0\n2,2.0,2.0\n3,1.5,1.5\n"
    table = loss_table(rows())
    assert table.head == ("step", "unlimited", "milp-swap")
    assert [line[0] for line in table.body] == ["1", "2", "3"]
