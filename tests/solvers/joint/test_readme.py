"""The README's example runs as it stands."""

import re
from pathlib import Path

import solvers.joint


def test_the_example_runs() -> None:
    readme = Path(solvers.joint.__file__).with_name("README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
