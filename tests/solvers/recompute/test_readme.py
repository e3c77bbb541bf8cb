"""The commands of solvers/recompute/README.md work, run outside the repository."""

import json
from pathlib import Path

import pytest

from tests.readmes import blocks, shell

PIPELINE, FILES = blocks("solvers/recompute", "bash")


@pytest.mark.timeout(600)
def test_a_pipeline_is_planned_from_a_shape_and_a_cluster(tmp_path: Path) -> None:
    output = shell(PIPELINE, tmp_path)
    assert "Systems: gpt-7b on lynx-nvlink" in output
    assert "Stages of bayplan" in output


@pytest.mark.timeout(600)
def test_each_decision_is_a_file(tmp_path: Path) -> None:
    output = shell(FILES, tmp_path)
    assert output.count("no violations") == 2
    assert "added up again: it holds" in output
    trace = json.loads((tmp_path / "whole-trace.json").read_text(encoding="utf-8"))
    assert len(trace["traceEvents"]) > 100
