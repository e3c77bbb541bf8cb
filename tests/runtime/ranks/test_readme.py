"""The README's python example runs as it stands, and prints what it says."""

import re

import pytest

from tests.readmes import blocks


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str], plain_sim: None) -> None:
    (block,) = blocks("runtime/ranks", "python")
    exec(compile(block, "README.md", "exec"), {})
    values, nanoseconds = capsys.readouterr().out.splitlines()
    (promised,) = re.findall(r"run\.values\) +# (.*)", block)
    assert values == promised
    assert int(nanoseconds) > 0
