"""The README's python examples run as they stand, and print what it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readmes import ROOT, blocks


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str], plain_sim: None) -> None:
    block, _ = blocks("runtime/ranks", "python")
    exec(compile(block, "README.md", "exec"), {})
    values, nanoseconds = capsys.readouterr().out.splitlines()
    (promised,) = re.findall(r"run\.values\) +# (.*)", block)
    assert values == promised
    assert int(nanoseconds) > 0


def test_the_command_for_torchrun_runs_on_simulated_devices_too(tmp_path: Path) -> None:
    """As printed, but on device sim, as two ranks and for one step."""
    (block,) = blocks("runtime/ranks", "bash")
    words = shlex.split(block.replace("\\\n", "").replace("device=cuda", "device=sim").replace("4", "2"))
    assert words[0] == "torchrun" and "ranks=2" in words
    options = ["--standalone", *words[1:], "steps=1", "plots=false", f"run_dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "table.md").exists()


def test_ranks_within_budgets_agree(capsys: pytest.CaptureFixture[str], plain_sim: None) -> None:
    _, block = blocks("runtime/ranks", "python")
    exec(compile(block, "README.md", "exec"), {})
    one, other = capsys.readouterr().out.strip("[]\n").split(", ")
    assert float(one) == float(other) > 0
