"""The commands of solvers/recompute/README.md work, run outside the repository."""

import json
from pathlib import Path

import pytest

from tests.readmes import blocks, shell, with_less_work

PIPELINE, FILES, PARTITION = blocks("solvers/recompute", "bash")


@pytest.mark.timeout(600)
def test_a_pipeline_is_planned_from_a_shape_and_a_cluster(tmp_path: Path) -> None:
    output = shell(PIPELINE, tmp_path)
    assert "Systems: gpt-23b on lynx-nvlink" in output
    assert "Stages of bayplan" in output


def test_the_best_split_of_layers_beats_the_even_one(tmp_path: Path) -> None:
    output = shell(PARTITION, tmp_path)
    assert [line.split()[1] for line in output.splitlines() if "objective" in line] == ["1464932", "1384779"]


@pytest.mark.timeout(600)
def test_each_decision_is_a_file(tmp_path: Path) -> None:
    output = shell(with_less_work(FILES, "0.1", "0.01"), tmp_path)
    assert output.count("no violations") == 2
    assert "added up again: it holds" in output
    trace = json.loads((tmp_path / "whole-trace.json").read_text(encoding="utf-8"))
    assert len(trace["traceEvents"]) > 100
