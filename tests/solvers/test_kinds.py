"""Every row of the table of kinds leads somewhere, and looking a kind up imports no room."""

import subprocess
import sys
from dataclasses import fields

import pytest

from solvers.ir import Plan, Problem
from solvers.kinds import KINDS, Kind, kinds_with, load

FUNCTIONS = [entry.name for entry in fields(Kind) if entry.name not in ("problem", "plan", "budget", "certificates")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_of_a_row_is_there(kind: str) -> None:
    row = KINDS[kind]
    problem, plan = load(row.problem), load(row.plan)
    assert issubclass(problem, Problem) and issubclass(plan, Plan)
    assert kind == problem.KIND
    assert row.budget is None or hasattr(problem, row.budget)
    targets = [*row.certificates.values(), *filter(None, (getattr(row, name) for name in FUNCTIONS))]
    assert all(load(target) is not None for target in targets)


def test_a_schedule_that_can_be_made_can_be_judged_and_simulated() -> None:
    for kind in kinds_with("timeline"):
        assert KINDS[kind].lower is not None and KINDS[kind].judge_schedule is not None


def test_the_vocabulary_imports_no_room() -> None:
    said = "import solvers.ir, sys; print(*(name for name in sys.modules if name.startswith('solvers.')))"
    loaded = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[1] for name in loaded} == {"ir", "kinds"}
