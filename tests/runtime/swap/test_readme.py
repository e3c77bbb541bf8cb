"""The example of the README runs as printed."""

import re
from pathlib import Path

import torch

README = Path(__file__).parents[3] / "runtime" / "swap" / "README.md"


def test_the_example_runs_as_printed(device: torch.device) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})
