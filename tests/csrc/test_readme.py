"""The examples of csrc/README.md run, and print what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.device.native import why_missing

README = Path(__file__).resolve().parents[2] / "csrc" / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```(.*?)(?=```|\Z)", README.read_text(), re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
@pytest.mark.parametrize(("program", "told"), EXAMPLES)
def test_the_examples_run(program: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=README.parents[1]
    )
    assert done.returncode == 0, done.stderr
    if done.stdout:
        quoted = re.search(r"`([^`]*)`", told)
        assert quoted is not None
        assert " ".join(quoted[1].split()) == done.stdout.strip()
