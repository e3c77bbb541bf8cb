"""A real Ctrl-C, sent to the whole process group as a terminal does, keeps the best solution."""

import os
import signal

import pytest

from tests.solvers.engines.models import ENGINES, last_json, run_python

CODE = """
import json
from solvers.engines import solve
from solvers.ir.solution import Limits
from tests.solvers.engines.models import HARD, knapsack

told = False
def watch(incumbent, bound, elapsed_s):
    global told
    if incumbent is not None and bound is not None and not told:
        told = True
        print("found", flush=True)
    return False

answer = solve(HARD, Limits(time_s=60), engine=ENGINE, watch=watch)
print(json.dumps([answer.status.value, answer.objective, answer.bound, answer.reason, answer.solve_time_s,
                  HARD.violations(answer.x) == (), solve(knapsack(), engine=ENGINE).objective,
                  answer.interrupted]))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_keeps_the_best_solution(engine: str) -> None:
    child = run_python(f"ENGINE = {engine!r}\n{CODE}", start_new_session=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "found\n"
    os.killpg(child.pid, signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    status, objective, bound, reason, seconds, clean, afterwards, interrupted = last_json(output)
    assert (status, clean, afterwards, interrupted) == ("feasible", True, -355, True)
    assert bound < objective < 0
    assert seconds < 30
    assert "Ctrl-C" in reason or "interrupted" in reason
