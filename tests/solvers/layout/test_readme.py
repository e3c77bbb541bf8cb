"""The commands of solvers/layout/README.md work, run outside the repository."""

import json
from pathlib import Path

import pytest

from tests.readmes import blocks, shell, with_less_work

(COMMANDS,) = blocks("solvers/layout", "bash")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_chunks_and_blocks_are_laid_out_from_a_shape_and_from_a_step(tmp_path: Path) -> None:
    output = shell(with_less_work(COMMANDS, "1", "0.1"), tmp_path)
    assert output.count("no violations") == output.count("added up again: it holds") == 2  # of a shape, of a real step
    trace = json.loads((tmp_path / "lanes.json").read_text(encoding="utf-8"))
    assert len(trace["traceEvents"]) > 100
