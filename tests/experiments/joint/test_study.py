"""A case of the joint study, small: its figures are of judged plans, and known cases are not planned again."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.joint import __main__ as main
from experiments.joint.study import answered
from solvers.ir import JointProblem
from tests.solvers.joint.layered import layered


class Small:
    """Stands for a case: two layers."""

    name, link, family = "two layers", "PCIe 4", "Llama"

    def problem(self) -> JointProblem:
        return layered(0.2, layers=2)


def test_a_case_is_answered_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = answered(Small(), 0.01)  # type: ignore[arg-type]
    assert row["link"] == "PCIe 4" and row["excess_bytes"] > 0
    assert row["bound"] <= row["joint"] <= row["greedy"]
    assert row["joint"] <= min(row[key] for key in ("swap", "recompute") if row[key] is not None)
    (tmp_path / "cases.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.setattr(main, "CASES", (Small(),))
    monkeypatch.setattr(main, "answered", None)  # called for nothing: the case is known
    done = CliRunner().invoke(main.command, ["--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "| two layers | PCIe 4 |" in (tmp_path / "cases.md").read_text("utf-8")
