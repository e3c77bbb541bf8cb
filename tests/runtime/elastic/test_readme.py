"""The README's examples run as they stand: one in a process of its own, and its numbers are equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runtime.elastic import ElasticJob, train_alone
from tests.readmes import ROOT, blocks


def test_the_example_goes_on_with_three_processes(tmp_path: Path) -> None:
    block, _ = blocks("runtime/elastic", "python")
    program = tmp_path / "example.py"
    program.write_text(block)
    done = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    nodes, equal, parts = done.stdout.splitlines()
    assert nodes.startswith("(4, ")  # its limits are those of the README: a busy machine may lose more than one
    assert equal == "losses equal: True states equal: True"
    assert all(name in parts for name in ("detect", "decide", "regroup", "transfer", "redo"))


def test_the_job_of_a_model_of_transformers_trains() -> None:
    pytest.importorskip("transformers")
    _, block = blocks("runtime/elastic", "python")
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    job = names["job"](torch.device("cpu"))  # type: ignore[operator]
    assert isinstance(job, ElasticJob)
    first, *_, last = train_alone(job, 4).losses
    assert last < first
