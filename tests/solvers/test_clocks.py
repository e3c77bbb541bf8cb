"""Where `work` is the limit, no solver's answer depends on the clock: one that jumps gives the same plan."""

import itertools
import time
from typing import Any

import pytest

from solvers.ir import Limits, Solution
from solvers.planner import SOLVERS, build_solver, solver_names
from solvers.recompute.graph.instances import random_layered
from solvers.swap.instances import llama2
from tests.contract import contract_of

SEEDS = (4, 7)
LARGER: dict[str, Any] = {"swap": lambda: llama2(layers=3), "recompute-graph": lambda: random_layered(60, seed=1)}
"""Instances that no solver ends by proving the optimum at once."""


def answers(name: str, work: float) -> list[tuple[object, ...]]:
    kind = SOLVERS[name].kind
    problems = [contract_of(kind).tiny(seed) for seed in SEEDS]
    problems += [LARGER[kind]()] if kind in LARGER else []
    found: list[Solution[object]] = [build_solver(name, {}).solve(problem, Limits(work=work)) for problem in problems]
    return [(one.status, one.plan, one.objective, one.bound, one.reason, one.certificate) for one in found]


@pytest.mark.parametrize("name", solver_names())
def test_a_clock_that_jumps_changes_no_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(name, 0.3)
    jumps = itertools.count(1)
    for clock in ("perf_counter", "monotonic"):
        real = getattr(time, clock)
        monkeypatch.setattr(time, clock, lambda real=real: real() + 1000.0 * next(jumps))
    assert answers(name, 0.3) == expected


def test_work_alone_has_no_time_limit_and_time_alone_stays_as_it_was() -> None:
    assert Limits(work=1.0).time_s == float("inf")
    assert Limits().time_s == 60.0
    assert Limits(time_s=5.0, work=1.0).time_s == 5.0
