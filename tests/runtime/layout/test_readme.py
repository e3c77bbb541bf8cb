"""The example of runtime/layout/README.md runs as printed, outside the repository (python)."""

import re
import sys
from pathlib import Path

import pytest

from tests.readmes import blocks, run

(PROGRAM,) = blocks("runtime/layout", "python")


@pytest.mark.timeout(600)
def test_a_model_twice_the_device_trains(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PROGRAM, encoding="utf-8")
    output = run([sys.executable, "own.py"], tmp_path)
    losses = [float(found) for found in re.findall(r"loss (\d\.\d+)", output)]
    assert losses == sorted(losses, reverse=True) and len(losses) == 3
    assert int(re.findall(r"device peak +(\d+) bytes", output)[0]) <= 48 << 20
