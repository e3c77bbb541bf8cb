"""Gurobi's licence: within it Gurobi answers, beyond it an open engine does and says so."""

import pytest

from solvers.engines import solve
from solvers.engines.gurobi import licence_state
from solvers.ir.solution import Limits, Status
from tests.solvers.engines.models import knapsack

bundled = pytest.mark.skipif("bundled" not in licence_state(), reason="this machine has a full Gurobi licence")


@bundled
def test_two_thousand_columns_pass_and_one_more_falls_back() -> None:
    limits = Limits(time_s=20, gap=0.05)
    assert solve(knapsack(2000, 2), limits, engine="gurobi").engine.startswith("Gurobi ")
    answer = solve(knapsack(2001, 2), limits, engine="gurobi")
    assert answer.status is Status.FEASIBLE
    assert answer.engine.startswith("HiGHS ")
    assert answer.engine.endswith("(gurobi asked, licence refused)")
    assert answer.fallback is not None
    assert answer.reason is not None
    assert "2001 columns" in answer.fallback
    assert "error 10010" in answer.fallback
    assert answer.fallback in answer.reason


@pytest.mark.parametrize("licence", [None, "EXPIRATION=2020-01-01\n"])
def test_no_licence_and_an_expired_one_fall_back(
    licence: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    file = tmp_path / "gurobi.lic"  # type: ignore[operator]
    if licence is not None:
        file.write_text(licence)
    monkeypatch.setenv("GRB_LICENSE_FILE", str(file))
    answer = solve(knapsack(), engine="gurobi")
    assert (answer.status, answer.objective) == (Status.OPTIMAL, -355)
    assert answer.engine.startswith("HiGHS ")
    assert answer.fallback is not None
    assert "error 10009" in answer.fallback
    assert "\n" not in answer.fallback
    assert licence_state().startswith("refused: ")
