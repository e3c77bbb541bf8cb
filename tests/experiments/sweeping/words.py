"""A sweep on paper that is cheap: twelve pipelines, one system each."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.experiments.commands.console import ROOT

OTHERS = ("selective", "adapipe", "heu", "lynx", "lynx-dp", "lynx-fastest", "bayplan")
CELLS = 12
WORDS = [
    "experiment=lynx", "shape=gpt-1.3b", "plots=false", f"microbatch=range(1,{CELLS + 1})",
    *(f"~systems.{name}" for name in OTHERS),
]  # fmt: skip
PATIENCE_S = 240.0


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The sweep in a process of its own."""
    command = [sys.executable, "-m", "experiments.compare", *WORDS, *words, "-m", f"run_dir={folder}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    piped = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder.parent, env=environment, text=True, stdout=piped, stderr=piped, process_group=0
    )


def until(true: Callable[[], bool], what: str) -> None:
    """Wait patiently."""
    ends = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.02)


def marks(folder: Path) -> dict[str, int]:
    """When each cell was done, by its folder."""
    return {mark.parent.name: mark.stat().st_mtime_ns for mark in folder.glob("cells/*/done")}


def microbatches(folder: Path) -> list[int]:
    """The cells of the sweep's rows, a number for each row."""
    lines = (folder / "rows.jsonl").read_text().splitlines()
    return [json.loads(line)["asked"]["microbatch"] for line in lines]
