"""`bayplan solvers`."""

import pytest

from solvers.engines import EngineInfo
from solvers.planner import SOLVERS
from tests.experiments.commands.console import call, refused


def test_every_solver_stands_under_its_kind_with_its_parameters() -> None:
    outcome = call("solvers")
    assert outcome.code == 0
    for name, entry in SOLVERS.items():
        (line,) = [line for line in outcome.out.splitlines() if line.strip().startswith(f"{name} ")]
        assert entry.about in line
        assert f"solvers of {entry.kind} problems" in outcome.out
    assert "printed=false" in outcome.out
    assert "engine=auto" in outcome.out


def test_engines_with_version_and_licence(monkeypatch: pytest.MonkeyPatch) -> None:
    there = (EngineInfo("highs", "HiGHS", "1.2.3", "MIT"), EngineInfo("gurobi", "Gurobi", None, "pip install gurobipy"))
    monkeypatch.setattr("solvers.engines.engines", lambda: there)
    lines = [line.split() for line in call("solvers").out.splitlines()]
    assert ["highs", "HiGHS", "1.2.3", "MIT"] in lines
    assert ["gurobi", "Gurobi", "absent", "pip", "install", "gurobipy"] in lines


def test_it_takes_no_arguments() -> None:
    assert "unexpected extra argument" in refused(call("solvers", "swap"))
