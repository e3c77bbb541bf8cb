"""What `simulate` shows of a joint plan is what the judge computes."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from solvers.check.joint.judge import judge_joint
from solvers.ir import InvalidProblem, JointSwap
from solvers.joint.draft import measure, plan_of
from solvers.joint.report import plan_report
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.drafts import random_draft


def test_reports_agree_with_the_judge() -> None:
    shown = 0
    for seed in range(300):
        problem = random_problem(seed % 100)
        problem = replace(problem, budget_bytes=problem.budget_bytes + seed % 9)
        given, draft = random_draft(problem, seed)
        if measure(given, draft).violation is not None:
            continue
        report = plan_report(problem, plan_of(given, draft))
        objective = judge_joint(problem, plan_of(given, draft)).objective_us
        assert objective is not None and objective - 1 < report.makespan_us <= objective
        assert report.base_us is not None
        rest = sum(report.stall_us.values()) + (report.launch_us or 0)
        assert report.makespan_us == pytest.approx(report.base_us + rest)
        assert report.peak_bytes <= problem.budget_bytes
        assert len(report.spans) == len(problem.ops) + 2 * len(draft.away)
        for lane in ("0.compute", "0.out", "0.in"):  # one at a time
            spans = sorted((span.start_us, span.end_us) for span in report.spans if span.lane == lane)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        shown += bool(draft.away)
    assert shown > 40


def test_invalid_plans_and_foreign_stages_are_refused() -> None:
    problem = random_problem(0)
    given, draft = random_draft(problem, 0)
    plan = plan_of(given, draft)
    with pytest.raises(InvalidProblem, match="the plan is invalid"):
        plan_report(replace(problem, budget_bytes=0), plan)
    with pytest.raises(InvalidProblem, match="stages beyond"):
        plan_report(problem, replace(plan, swap=(JointSwap(op=0, out_after=0, in_at=99),)))
    with pytest.raises(InvalidProblem, match="stages beyond"):
        plan_report(problem, replace(plan, compute=(*plan.compute, (99, 0))))
