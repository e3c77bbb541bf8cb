"""Drafts mean what the independent judge says of their plans: violation or not, and the objective to the µs."""

import msgspec
import pytest

from solvers.check.joint.judge import judge_joint
from solvers.joint.draft import draft_of, measure, plan_of
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.drafts import random_draft


@pytest.mark.parametrize("part", range(4))
def test_measured_as_judged(part: int) -> None:
    valid = swapped = 0
    for seed in range(250 * part, 250 * (part + 1)):
        problem = random_problem(seed % 120)
        problem = msgspec.structs.replace(problem, budget_bytes=problem.budget_bytes + seed % 9)
        given, draft = random_draft(problem, seed)
        found, verdict = measure(given, draft), judge_joint(problem, plan_of(given, draft))
        assert (found.violation is None) == verdict.clean, (seed, found.violation, verdict.violations)
        if verdict.clean:
            assert found.objective_us == verdict.objective_us, seed
            valid, swapped = valid + 1, swapped + bool(draft.away)
    assert valid > 60 and swapped > 25


def test_plans_are_drafts_again() -> None:
    for seed in range(60):
        given, draft = random_draft(random_problem(seed), seed)
        if measure(given, draft).violation is None:
            again = draft_of(given, plan_of(given, draft))
            assert [set(run) for run in draft.again] == [set(run) for run in again.again]
            assert again.away == draft.away


def test_many_pairs_are_kept_as_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solvers.joint.draft.MOST_PAIRS", 2)
    for seed in range(40):
        problem = random_problem(seed)
        given, draft = random_draft(problem, seed)
        found, plan = measure(given, draft), plan_of(given, draft)
        verdict = judge_joint(problem, plan)
        assert (found.violation is None) == verdict.clean, seed
        assert found.violation is not None or found.objective_us == verdict.objective_us
