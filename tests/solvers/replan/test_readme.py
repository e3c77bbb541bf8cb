"""The README's example runs as printed, and goes on from its file; its commands lead from a failure to a plan."""

import re
from pathlib import Path
from typing import Any

import pytest

import solvers.replan
from tests.readmes import blocks, shell

README = Path(solvers.replan.__file__).with_name("README.md").read_text(encoding="utf-8")


def test_the_campaign_runs_as_printed_and_goes_on_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    first = capsys.readouterr().out
    assert "Spread(count=4" in first
    assert names["runs"].ratio("chameleon", "recycle").mean > 1
    written = Path("runs.jsonl").read_text()
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out == first
    assert Path("runs.jsonl").read_text() == written


@pytest.mark.timeout(600)
def test_a_failure_is_answered_from_a_shape_and_a_cluster(tmp_path: Path) -> None:
    (commands,) = blocks("solvers/replan", "bash")
    output = shell(commands, tmp_path)
    assert output.count("no violations") == 1
    assert "Lives: llama-2-7b on 8 pipelines of 4, 3 times 1 h" in output
