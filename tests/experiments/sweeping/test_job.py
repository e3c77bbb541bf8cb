"""A cell's lock, and what becomes of a cell whose computation is at fault."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.pipeline import compare
from experiments.pipeline.planned import compare_systems
from experiments.rows import read_rows
from experiments.sweeping.job import held
from tests.experiments.commands.console import ROOT, call

HOLDER = "import sys; from pathlib import Path; from experiments.sweeping.job import held\n"
HOLDER += "with held(Path(sys.argv[1]), False) as mine: print(mine, flush=True); sys.stdin.read()"


def test_a_cell_that_another_process_has_is_busy_until_that_dies(tmp_path: Path) -> None:
    lock = tmp_path / "cell" / ".lock"
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        with held(lock, wait=False) as mine:
            assert not mine
        other.kill()
        with held(lock, wait=True) as mine:
            assert mine


def test_a_fault_of_bayplans_own_is_a_row_and_the_other_cells_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(pipeline, systems):  # type: ignore[no-untyped-def]
        if pipeline.parallelism.microbatch == 8:
            raise ZeroDivisionError("by nothing")
        return compare_systems(pipeline, systems)

    words = ["compare", "experiment=lynx", "plots=false", "-m", "microbatch=8,16", f"run_dir={tmp_path / 'run'}"]
    monkeypatch.setattr(compare, "compare_systems", faulty)
    assert call(*words).code == 70
    rows = read_rows(tmp_path / "run" / "rows.jsonl")
    assert {row.asked["microbatch"] for row in rows if row.outcome == "ok"} == {16}
    (fault,) = (row for row in rows if row.asked["microbatch"] == 8)
    assert fault.reason == "a fault of Bayplan's own (ZeroDivisionError: by nothing): see log.txt in its folder"
    (log,) = (tmp_path / "run" / "cells").glob("microbatch=8*/log.txt")
    assert "Traceback" in log.read_text()

    monkeypatch.setattr(compare, "compare_systems", compare_systems)
    outcome = call(*words)
    assert outcome.code == 0 and "failed in an earlier run: 1 cell, computed again" in outcome.err
    assert json.loads((log.parent / "done").read_text())["rows"] == 8
