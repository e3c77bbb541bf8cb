"""The judge of plan files: every false claim is named, true claims pass, and nothing else is asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check import Verdict, check_plan
from solvers.check.layout.floor import base_us
from solvers.check.layout.least import least_device_bytes
from solvers.check.plan import certificates_of, judge_of
from solvers.ir import (
    InvalidInput,
    LayoutProblem,
    PartitionProblem,
    PlanFile,
    RecomputeGraphProblem,
    Solution,
    Status,
    Swap,
    SwapPlan,
    SwapProblem,
)
from solvers.ir.codec import plan_file, problem_sha256
from solvers.kinds import KINDS
from tests.solvers.check.certificates import SPLIT
from tests.solvers.check.certificates import STORY as CUT
from tests.solvers.check.certificates import story as cut
from tests.solvers.check.partition.test_judge import STORY as PARTITION
from tests.solvers.check.recompute_graph.test_judge import STORY as GRAPH
from tests.solvers.check.recompute_layer.test_judge import MIXED
from tests.solvers.check.recompute_layer.test_judge import STORY as LAYER
from tests.solvers.check.swap.test_judge import STORY
from tests.solvers.layout.brute_force import optimum
from tests.solvers.layout.brute_force import random_problem as random_layout
from tests.strategies import plans, problems

PLAN = SwapPlan(swaps=(Swap(tensor="x", swap_in_at=4),))
"""Takes 67 us where the base is 50 (test_swap); the least budget of the story is 8 bytes."""


def claim(**fields: Any) -> PlanFile:
    """The file of a feasible answer that claims the truth, changed as told."""
    solution = Solution(status=Status.FEASIBLE, plan=PLAN, solver="test", objective=67, bound=60.5, base=50)
    return replace(plan_file(solution, "swap", problem_sha256(STORY)), **fields)


def infeasible(**fields: Any) -> tuple[SwapProblem, PlanFile]:
    """The story with 6 of the 8 bytes that it needs, and the file of a true refusal, changed as told."""
    problem = replace(STORY, budget_bytes=6)
    solution: Solution[SwapPlan] = Solution(
        status=Status.INFEASIBLE,
        plan=None,
        solver="test",
        least_budget_bytes=8,
        reason="the budget is 6 bytes, but exactly 8 bytes are needed",
    )
    return problem, replace(plan_file(solution, "swap", problem_sha256(problem)), **fields)


def test_a_true_claim_passes() -> None:
    assert check_plan(STORY, claim()) == Verdict((), 67)
    assert check_plan(STORY, claim(status=Status.OPTIMAL, bound_us=67.0)) == Verdict((), 67)


def test_what_is_not_claimed_is_not_judged() -> None:
    modest = claim(problem_sha256=None, objective_us=None, bound_us=None, base_us=None)
    assert check_plan(STORY, modest) == Verdict((), 67)


def test_another_problems_plan_is_refused() -> None:
    verdict = check_plan(replace(STORY, budget_bytes=11), claim())
    assert verdict.objective_us is None
    assert len(verdict.violations) == 1
    assert "another problem's" in verdict.violations[0]
    assert check_plan(STORY, claim(), sha256="0" * 64).violations
    assert check_plan(STORY, claim(problem_sha256="0" * 64), sha256="0" * 64).clean


def test_without_a_hash_the_decision_is_judged_on_any_problem() -> None:
    assert check_plan(replace(STORY, budget_bytes=11), claim(problem_sha256=None)).clean


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"objective_us": 66}, "objective_us is 66, but the decision takes 67"),
        ({"bound_us": 67.5}, "bound_us is 67.5, above the objective 67"),
        ({"base_us": 49}, "base_us is 49, but with unlimited memory it is 50"),
        ({"status": Status.OPTIMAL}, "status is optimal, but bound_us is 60.5 and the decision takes 67"),
        (
            {"status": Status.OPTIMAL, "bound_us": None},
            "status is optimal, but bound_us is null and the decision takes 67",
        ),
        ({"status": Status.INFEASIBLE, "base_us": None}, "status is infeasible, but there is a decision"),
        ({"status": Status.INFEASIBLE, "base_us": None}, "status is infeasible, but the problem has a valid decision"),
        ({"status": Status.UNKNOWN}, "status is unknown, but there is a decision"),
        ({"decision": None}, "the answer is feasible: there is no decision to judge"),
        ({"decision": None}, "status is feasible, but decision is null"),
        ({"decision": None, "status": Status.UNKNOWN}, "objective_us is 67, but decision is null"),
        ({"least_budget_bytes": 9}, "least_budget_bytes is 9, but the least feasible budget is 8"),
        ({"least_budget_bytes": 7}, "least_budget_bytes is 7, but the least feasible budget is 8"),
        ({"certificate": {"form": "magic"}}, "certificate has the unknown form 'magic': the kind swap knows none"),
        ({"certificate": {}}, "certificate has the unknown form None: the kind swap knows none"),
        ({"kind": "partition"}, "the plan is of kind partition, but the problem of kind swap"),
    ],
)
def test_each_false_claim_is_named(fields: dict[str, Any], words: str) -> None:
    assert words in check_plan(STORY, claim(**fields)).violations


def test_claims_about_an_invalid_decision_are_not_compared_with_it() -> None:
    verdict = check_plan(STORY, claim(decision={"swaps": []}))
    assert verdict.violations[0] == "op 2 ('op2') needs 14 bytes when all is swapped out, budget 10"
    assert verdict.objective_us is None
    assert not any("objective" in violation or "bound" in violation for violation in verdict.violations)


def test_a_true_refusal_has_only_no_decision() -> None:
    problem, file = infeasible()
    assert check_plan(problem, file).violations == ("the answer is infeasible: there is no decision to judge",)
    lower = {"least_budget_bytes": 7, "reason": "at least 7 bytes are needed"}
    assert len(check_plan(problem, infeasible(**lower)[1]).violations) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base_us": 50}, "base_us is 50, but an infeasible answer has no base: it must be null"),
        ({"least_budget_bytes": None}, "status is infeasible, but least_budget_bytes is null"),
        (
            {"reason": "too little memory"},
            "least_budget_bytes is 8, but reason does not say exactly or at least 8 bytes",
        ),
        ({"reason": None}, "least_budget_bytes is 8, but reason does not say exactly or at least 8 bytes"),
        (
            {"least_budget_bytes": 7, "reason": "exactly 7 bytes"},
            "least_budget_bytes is 7, but the least feasible budget is 8",
        ),
        (
            {"least_budget_bytes": 9, "reason": "at least 9 bytes"},
            "least_budget_bytes is 9, but the least feasible budget is 8",
        ),
        (
            {"least_budget_bytes": 6, "reason": "at least 6 bytes"},
            "status is infeasible, but least_budget_bytes 6 is within budget 6",
        ),
    ],
)
def test_each_false_refusal_is_named(fields: dict[str, Any], words: str) -> None:
    problem, file = infeasible(**fields)
    assert words in check_plan(problem, file).violations


def test_false_infeasibility_is_told_where_it_is_easy_to_tell() -> None:
    refusal: Solution[Any] = Solution(status=Status.INFEASIBLE, plan=None, solver="test")
    file = plan_file(refusal, "partition", problem_sha256(PARTITION))
    assert "status is infeasible, but the problem has a valid decision" in check_plan(PARTITION, file).violations
    hopeless = replace(PARTITION, cost_us=((None,) * 5, (None,) * 5))
    file = plan_file(refusal, "partition", problem_sha256(hopeless))
    assert check_plan(hopeless, file).violations == ("the answer is infeasible: there is no decision to judge",)


def test_kinds_without_base_or_budget_claim_none() -> None:
    answer: Solution[Any] = Solution(status=Status.UNKNOWN, plan=None, solver="test", base=24, least_budget_bytes=3)
    violations = check_plan(PARTITION, plan_file(answer, "partition", None)).violations
    assert "base_us is 24, but the kind partition has no base: it must be null" in violations
    assert "least_budget_bytes is 3, but the kind partition has no budget" in violations


def test_the_bases_of_the_recompute_kinds() -> None:
    layer = plan_file(
        Solution(status=Status.FEASIBLE, plan=MIXED, solver="test", objective=24, base=0), LAYER.KIND, None
    )
    assert check_plan(LAYER, layer) == Verdict((), 24)
    assert check_plan(LAYER, replace(layer, base_us=1)).violations
    unknown: Solution[Any] = Solution(status=Status.UNKNOWN, plan=None, solver="test", base=18)
    assert len(check_plan(GRAPH, plan_file(unknown, GRAPH.KIND, None)).violations) == 1


def test_a_certificate_is_added_up_again() -> None:
    def add_up(problem: Any, certificate: Any) -> tuple[list[str], float]:
        total = sum(certificate["parts"])
        return ([] if total == certificate["total"] else [f"parts add up to {total}"]), total

    known = {"sum": add_up}

    def violations(total: int, bound: float) -> tuple[str, ...]:
        certificate = {"form": "sum", "parts": [30, 30], "total": total}
        return check_plan(STORY, claim(certificate=certificate, bound_us=bound), certificates=known).violations

    assert violations(60, 60.0) == ()
    assert violations(60, 61.0) == ("bound_us is 61.0, but the certificate proves only 60",)
    assert violations(61, 61.0) == ("certificate: parts add up to 60",)
    too_much = {"form": "sum", "parts": [10**6], "total": 10**6}
    (said,) = check_plan(STORY, claim(certificate=too_much, bound_us=None), certificates=known).violations
    assert said.startswith("the certificate proves 1000000, but the decision takes ")


def forged(problem: LayoutProblem | RecomputeGraphProblem, certificate: dict[str, Any]) -> tuple[str, ...]:
    """What is found in a refusal of the problem that its certificate is said to prove, besides that there is none."""
    budget = problem.device_bytes if isinstance(problem, LayoutProblem) else problem.budget_bytes
    refusal: Solution[Any] = Solution(
        status=Status.INFEASIBLE,
        plan=None,
        solver="test",
        least_budget_bytes=budget + 1,
        reason=f"at least {budget + 1} bytes are needed",
        certificate=certificate,
    )
    return check_plan(problem, plan_file(refusal, problem.KIND, problem_sha256(problem))).violations[1:]


def test_a_certificate_of_a_bound_proves_no_infeasibility() -> None:
    """Of each kind and form: feasible problems, of which that is not easy to tell, and certificates that add up."""
    words = "status is infeasible, but the certificate proves only that no decision ends before {} us"
    tree = {"form": "layout-tree/1", "unit": 1, "most_us": 0, "leaves": [{"limits": {}, "duals": {}}]}
    tried = 0
    for seed in range(300):
        problem = replace(random_layout(seed), host_bytes=3)
        problem = replace(problem, device_bytes=least_device_bytes(problem)[1] - 1)
        best = optimum(problem)
        if best is None:
            continue
        tried += 1
        assert forged(problem, {"form": "floor/1"}) == (words.format(base_us(problem)),)
        assert forged(problem, {"form": "every-decision/1"}) == (words.format(best),)
        assert forged(problem, tree) == (words.format(0),)
        assert "nothing is proved" in forged(problem, {"form": "least-memory/1"})[0]
    assert tried > 3
    assert forged(CUT, cut(SPLIT)) == (words.format(22),)


def test_a_certificate_that_nothing_is_valid_proves_infeasibility() -> None:
    problem = random_layout(0)
    none = replace(problem, device_bytes=least_device_bytes(problem)[0] - 1)
    for form in ("every-decision/1", "least-memory/1"):
        violations = forged(none, {"form": form})
        assert not any("certificate" in violation for violation in violations), violations


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_judge_and_what_adds_its_certificates_up(kind: str) -> None:
    assert callable(judge_of(kind).decision)
    assert list(certificates_of(kind)) == list(KINDS[kind].certificates)


def test_a_decision_without_its_form_is_bad_input() -> None:
    with pytest.raises(InvalidInput, match="decision"):
        check_plan(STORY, claim(decision={"swap": []}))


@given(st.data())
def test_any_well_formed_plan_of_any_kind_gets_a_verdict_in_single_lines(data: st.DataObject) -> None:
    problem = data.draw(problems)
    solution: Solution[Any] = Solution(
        status=Status.FEASIBLE, plan=data.draw(plans(problem)), solver="test", objective=data.draw(st.integers(0, 99))
    )
    verdict = check_plan(problem, plan_file(solution, problem.KIND, problem_sha256(problem)))
    assert all("\n" not in violation for violation in verdict.violations)
    if verdict.clean:
        assert verdict.objective_us == solution.objective


def test_the_judge_knows_the_kinds_of_its_stories() -> None:
    assert isinstance(GRAPH, RecomputeGraphProblem)
    assert isinstance(PARTITION, PartitionProblem)
