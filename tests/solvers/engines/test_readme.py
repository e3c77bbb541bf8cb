"""The README's examples run as they stand."""

import re
from pathlib import Path

import pytest

import solvers.engines

README = Path(solvers.engines.__file__).with_name("README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["linear", "intervals"])
def test_the_examples_run(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})
