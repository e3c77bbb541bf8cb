"""Programs unlike ours are compared bit by bit as ours are: with NaN, with sparse gradients, and with late starts."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from experiments.planning import Prepared, prepare
from experiments.training import experiment
from runtime.device.native import why_missing
from tests.experiments.commands.console import Outcome, call
from tests.experiments.training import outsiders

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")


def compared(factory: str, *words: str) -> tuple[Outcome, dict[str, Any]]:
    """What the command said, and the solver's row."""
    done = call(
        "compare", "model=own", f"model.factory={outsiders.__name__}:{factory}", "hardware.file=sim-small",
        "solver=[greedy-swap]", "baselines=[unlimited]", "plots=false", "run_dir=run", "robustness.noise_seeds=[]",
        "robustness.hardware=null", "problem.budget_fraction=0.8", *words,
    )  # fmt: skip
    rows = [json.loads(line) for line in Path("run/rows.jsonl").read_text().splitlines()]
    (row,) = (row for row in rows if row["asked"]["policy"] == "greedy-swap")
    return done, row


@pytest.mark.parametrize("factory", ["overflowing", "sparse"])
def test_gradients_that_are_no_numbers_or_sparse_are_compared_as_they_are(
    factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.equal says of NaN that no run repeats, and knows no sparse tensors."""
    monkeypatch.chdir(tmp_path)
    done, row = compared(factory)
    assert done.code == 0, done
    figures = row["figures"]
    assert figures["equal_losses"] and figures["equal_parameters"] and figures["equal_gradients"]


def test_a_program_that_starts_late_is_planned_after_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first step is not the profiled one; all steps are compared, and the budget holds from the plan on."""
    monkeypatch.chdir(tmp_path)
    done, row = compared("starting_late", "steps=4")
    assert done.code == 0, done
    figures = row["figures"]
    assert len(figures["losses"]) == 4
    assert figures["equal_losses"] and figures["equal_parameters"] and figures["equal_gradients"]
    assert figures["peak_bytes"] <= figures["budget_bytes"] and figures["as_planned"]
    assert row["reason"].startswith("the first 2 steps ran with all memory and no plan")


def test_an_interrupt_that_a_solver_answers_with_its_best_plan_ends_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: Any) -> Prepared:
        with suppress(KeyboardInterrupt):  # as solvers do, which then answer with the best they have
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return prepare(*given)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiment, "prepare", stopped)
    done = call(
        "compare", "model=own", f"model.factory={outsiders.__name__}:starting_late", "hardware.file=sim-small",
        "solver=[greedy-swap]", "baselines=[]", "plots=false", "run_dir=run",
    )  # fmt: skip
    assert done.code == 130
    assert done.err.splitlines()[-1] == "bayplan: interrupted by Ctrl-C: what was done so far is in run"
    assert not Path("run/plans").exists()
