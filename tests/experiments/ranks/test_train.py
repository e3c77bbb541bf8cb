"""The command: its row, table and pictures, and an exit code that tells bits apart."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from msgspec.structs import replace

from experiments.ranks import carriers, train
from experiments.ranks.outcomes import equal_in_all, table_of
from experiments.ranks.programs import Job, Trained
from experiments.ranks.reference import reference
from experiments.rows import read_rows
from experiments.tables import to_markdown
from experiments.train import main as bayplan_train
from solvers.ir import InvalidInput

WORDS = ["experiment=ranks", "ranks=2", "steps=2", "model.layers=2", "model.width=16", "model.context=8"]


def test_a_run_leaves_its_row_its_table_a_report_a_rank_and_the_lanes(tmp_path: Path) -> None:
    assert train.main([*WORDS, "style=1f1b", "microbatches=2", f"run_dir={tmp_path}"]) == 0
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert equal_in_all(row) and row.figures["races"] == 0
    assert row.asked["style"] == "1f1b" and row.figures["losses"][0] == []  # the first stage sees no loss
    assert to_markdown([table_of(row)]) == (tmp_path / "table.md").read_text()
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {"rank-0.json", "rank-1.json"}
    assert ElementTree.parse(tmp_path / "lanes.svg").getroot().tag.endswith("svg")


def test_other_bits_are_told_and_end_with_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(job: Job) -> list[Trained]:
        found = reference(job)
        next(iter(found[1].gradients.values())).add_(1.0)
        return found

    monkeypatch.setattr(train, "reference", other)
    assert train.main([*WORDS, "plots=false", f"run_dir={tmp_path}"]) == 1
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert row.figures["equal_gradients"] == [True, False]
    assert "NO" in capsys.readouterr().out


def test_help_says_what_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert bayplan_train(["experiment=ranks", "--help"]) == 0
    assert "style=ddp|fsdp2|tp|1f1b" in capsys.readouterr().out


def test_processes_on_cpus_are_near_the_reference_and_have_no_virtual_times(tmp_path: Path) -> None:
    """Real devices sum in another order: how far off they are stands in place of yes."""
    words = [*WORDS, "style=fsdp2", "carrier=processes", "device=cpu", f"run_dir={tmp_path}"]
    assert train.main(words) == 0
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert row.provenance.startswith("executed on 2 ranks of a CPU by gloo, torch ")
    assert row.asked["device"] == "cpu" and row.asked["hardware"] is None
    found = row.figures
    assert found["step_us"] is None and found["peak_bytes"] == found["compute_us"] == [None, None]
    assert all(0 <= one < 1e-5 for one in [*found["loss_difference"], *found["gradient_difference"]])
    assert "equal_losses" not in found and not (tmp_path / "lanes.svg").exists()
    assert "2 ranks as processes on cpu" in (tmp_path / "table.md").read_text()


def test_losses_that_are_far_off_are_told_by_the_exit_code() -> None:
    """One in a hundred is far; what is no number is as well."""
    row = next(iter(read_rows(Path("experiments/results/ranks/rows.jsonl"))))
    for off, near in ((0.0, True), (0.0099, True), (0.02, False), (float("nan"), False)):
        asked = {"figures": {**row.figures, "loss_difference": [0.0, off]}}
        assert equal_in_all(replace(row, **asked)) is near


def test_the_command_under_torchrun(tmp_path: Path) -> None:
    """As a user would type it: rank 0 has the row, with the bits of one process."""
    root = Path(__file__).parents[3]
    words = [*WORDS, "carrier=torchrun", "plots=false", f"run_dir={tmp_path / 'run'}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, "-m", "experiments.cli", "train", *words],
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        cwd=root, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("written to") == 1
    (row,) = read_rows(tmp_path / "run" / "rows.jsonl")
    assert equal_in_all(row) and row.figures["equal_gradients"] == [True, True]
    assert row.asked["carrier"] == "torchrun" and row.provenance.startswith("sim-executed")


def test_torchrun_and_ranks_must_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match="ranks is 2, but torchrun started 3 processes: set ranks=3, or start 2"):
        train.main([*WORDS, "carrier=torchrun", f"run_dir={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()


def test_a_rank_that_failed_by_itself_is_named_before_those_that_missed_it() -> None:
    said = ["Traceback\nDeadlock: … the process of a rank that it needs has ended: see why", "InvalidInput: too little"]
    with pytest.raises(InvalidInput, match="rank 1 ended with exit code 2: InvalidInput: too little"):
        carriers._require_good_ends([2, 2], said)
