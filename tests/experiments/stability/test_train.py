"""The experiment end to end: every policy trained, compared and written down; nothing lost on Ctrl-C."""

from pathlib import Path
from typing import Any

import pytest

from experiments.rows import read_rows
from experiments.stability import execution, train
from experiments.stability.record import entries_from_csv
from experiments.stability.training import Step, Trainer
from experiments.train import main as bayplan_train
from runtime.device.native import why_missing
from solvers.ir import InvalidInput, Row

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
TINY = ["experiment=stability", "model.layers=2", "model.context=32", "plots=false"]
SHORT = [*TINY, "steps=20", "validate_every=10", "scaling.initial=16777216", "scaling.growth_interval=4"]


def rows_of(folder: Path) -> dict[str, Row]:
    return {str(row.asked["policy"]): row for row in read_rows(folder / "rows.jsonl")}


def judge_equal(rows: dict[str, Row], policy: str, steps: int, validations: int) -> None:
    found = rows[policy].figures
    assert (rows[policy].outcome, found["steps"], found["validations"]) == ("ok", steps, validations)
    assert found["equal_losses"] and found["equal_validations"] and found["equal_parameters"]
    assert found["peak_bytes"] <= rows[policy].asked["budget_bytes"] < rows["unlimited"].figures["peak_bytes"]
    assert found["skipped"] == rows["unlimited"].figures["skipped"] >= 2


def test_300_steps_with_overflows_and_validations_lose_not_a_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, "steps=300", "validate_every=75", "scaling.growth_interval=40", "plots=true"]
    policies = "policies=[none,features,features_alone,index]"
    assert train.main([*words, policies, f"run_dir={tmp_path / 'run'}"]) == 0
    rows = rows_of(tmp_path / "run")
    assert rows["none"].outcome == "out-of-memory"
    judge_equal(rows, "features", 300, 4)
    did = rows["features"].figures["session"]
    assert did["generations"] >= 1 and did["swapped_out"] > 300 and did["failed"] == 0
    for policy in ("features_alone", "index"):  # it is the guard that keeps them alive, not how tensors are found
        ends = rows[policy].figures
        assert min(ends.get("failed_at", 300), ends.get("first_difference", 300)) <= 76  # the first validation
    for name in ("table.md", "losses.svg", "losses.png", "losses/features.csv", "config.yaml"):
        assert (tmp_path / "run" / name).stat().st_size > 500
    assert "What the sessions did" in capsys.readouterr().out


@pytest.fixture(scope="module")
def after_80_steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """The rows of all policies that lose nothing, in one run."""
    folder = tmp_path_factory.mktemp("stability") / "run"
    words = [*TINY, "steps=80", "validate_every=30", "scaling.growth_interval=10", "scaling.initial=131072"]
    assert train.main([*words, "policies=[recompute,index_guard,features,forgets]", f"run_dir={folder}"]) == 0
    return rows_of(folder)


@pytest.mark.parametrize("policy", ["recompute", "index_guard", "features", "forgets"])
def test_no_other_policy_loses_a_bit_either(after_80_steps: dict[str, Row], policy: str) -> None:
    judge_equal(after_80_steps, policy, 80, 2)


def test_a_sequence_that_comes_again_needs_no_new_policies(after_80_steps: dict[str, Row]) -> None:
    remembers, forgets = (after_80_steps[policy].figures["session"] for policy in ("features", "forgets"))
    assert remembers["generations"] < forgets["generations"]
    assert remembers["returns"] > 0 == forgets["returns"]


def test_ctrl_c_loses_nothing_and_the_folder_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SHORT, "policies=[recompute]", f"run_dir={tmp_path / 'run'}"]
    plain, calls = Trainer.step, 0

    def interrupted(trainer: Trainer, number: int) -> Step:
        nonlocal calls
        calls += 1
        if calls == 33:
            raise KeyboardInterrupt
        return plain(trainer, number)

    monkeypatch.setattr(Trainer, "step", interrupted)
    assert train.main(words) == 130
    assert "what was done so far is in" in capsys.readouterr().err
    half = entries_from_csv((tmp_path / "run/losses/recompute.csv").read_text(), "")
    assert [entry.step for entry in half] == list(range(1, 13))
    assert list(rows_of(tmp_path / "run")) == ["unlimited"]
    monkeypatch.setattr(Trainer, "step", plain)
    seen = []
    whole = execution.execute

    def watched(policy: Any, *rest: Any) -> Any:
        seen.append(policy.value)
        return whole(policy, *rest)

    monkeypatch.setattr(train, "execute", watched)
    assert train.main(words) == 0
    assert seen == ["recompute"]  # what had ended was not trained again
    found = rows_of(tmp_path / "run")["recompute"].figures
    assert found["equal_losses"] and found["equal_parameters"] and found["skipped"] >= 1
    assert entries_from_csv((tmp_path / "run/losses/recompute.csv").read_text(), "")[:12] == half


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    words = [*SHORT, "policies=[]", f"run_dir={tmp_path / 'run'}"]
    assert train.main(words) == 0
    with pytest.raises(InvalidInput, match="holds a run with other settings: choose another folder"):
        train.main([*words, "steps=21"])


def test_a_crash_is_an_outcome_with_its_step_and_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Trainer.validate

    def crashing(trainer: Trainer, batches: int) -> float:
        if trainer.model.recompute:
            raise RuntimeError("the tensor is not there\nat some place")
        return plain(trainer, batches)

    monkeypatch.setattr(Trainer, "validate", crashing)
    assert train.main([*SHORT, "policies=[recompute]", f"run_dir={tmp_path / 'run'}"]) == 0
    row = rows_of(tmp_path / "run")["recompute"]
    assert row.outcome == "error"
    assert row.reason is not None and row.reason.startswith("RuntimeError: the tensor is not there")
    assert (row.figures["failed_at"], row.figures["steps"]) == (11, 10)
    assert not row.figures["equal_losses"] and "first_difference" not in row.figures


def test_the_usage_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert bayplan_train(["experiment=stability", "--help"]) == 0
    assert "scaling.growth_interval=" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match="call it once for each value, each in a run_dir"):
        bayplan_train(["experiment=stability", "-m"])
