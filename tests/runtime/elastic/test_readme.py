"""The README's example runs as it stands, in a process of its own, and its numbers are equal."""

import os
import subprocess
import sys
from pathlib import Path

from tests.readmes import ROOT, blocks


def test_the_example_goes_on_with_three_processes(tmp_path: Path) -> None:
    (block,) = blocks("runtime/elastic", "python")
    program = tmp_path / "example.py"
    program.write_text(block)
    done = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    nodes, equal, parts = done.stdout.splitlines()
    assert nodes.startswith("(4, 3) ")
    assert equal == "losses equal: True states equal: True"
    assert all(name in parts for name in ("detect", "decide", "regroup", "transfer", "redo"))
