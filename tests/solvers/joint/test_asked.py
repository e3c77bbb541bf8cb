"""Ctrl-C while an engine works, at whatever model, ends the planner with the best plan so far."""

import math
from dataclasses import replace

import pytest

from solvers.engines import Answer, solve
from solvers.ir import Limits
from solvers.joint import Joint, asked
from tests.solvers.joint.layered import layered


@pytest.mark.parametrize("number", [1, 2, 30])
def test_the_keystroke_is_not_used_up(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The model of this number, of the moment, of others, of stretches or of gaps, is cut off."""
    calls: list[Answer] = []

    def interrupted(*model: object, **options: object) -> Answer:
        calls.append(solve(*model, **options))  # type: ignore[arg-type]
        return replace(calls[-1], interrupted=len(calls) == number)

    monkeypatch.setattr(asked, "solve", interrupted)
    solution = Joint(singles=False).solve(layered(0.02, layers=2), Limits(time_s=math.inf, work=0.01))
    assert solution.plan is not None and solution.reason is not None
    assert "stopped by the user" in solution.reason and len(calls) == number
