"""Claims of every kind: true ones are proven or said to be only claimed; forged ones are never called proven."""

import math
import random
from typing import Any

import msgspec
import pytest

from solvers.check import check_plan, prove
from solvers.ir import Limits, Status
from solvers.ir.codec import PlanFile, plan_file
from solvers.kinds import KINDS
from solvers.planner import SOLVERS, build_solver
from tests.contract import contract_of

SURELY = ("partition", "recompute-layer")
"""Kinds whose claims the judge always decides itself."""


def answered(kind: str, seed: int) -> tuple[Any, PlanFile, int | None]:
    contract = contract_of(kind)
    problem = contract.tiny(seed)
    names = {"pipeline": "bayplan", "recompute-layer": "heu"} | {SOLVERS[name].kind: name for name in contract.exact}
    solution = build_solver(names[kind], {}).solve(problem, Limits(work=1.0))
    return problem, plan_file(solution, kind, None), contract.optimum(problem)


@pytest.mark.parametrize("kind", KINDS)
def test_a_proof_is_never_of_more_than_the_optimum(kind: str) -> None:
    proven = claims = 0
    for seed in range(12):
        problem, plan, best = answered(kind, seed)
        proof = prove(problem, plan, check_plan(problem, plan))
        assert proof.violations == (), seed
        assert proof.proven_us <= (math.inf if best is None else best), seed
        claims, proven = claims + (proof.claim is not None), proven + proof.is_proven
    assert claims > 6
    assert proven == claims if kind in SURELY else proven > 0


@pytest.mark.parametrize("kind", KINDS)
def test_forged_claims_are_contradicted_or_called_claims(kind: str) -> None:
    source, forged = random.Random(kind), 0
    for seed in range(30):
        problem, plan, best = answered(kind, seed % 15)
        lie = _forged(plan, best, source)
        if lie is None:
            continue
        forged += 1
        verdict = check_plan(problem, lie)
        proof = prove(problem, lie, verdict)
        faults = [text for text in verdict.violations if "no decision to judge" not in text]
        assert faults or proof.violations or not proof.is_proven, seed
        assert "proven" not in proof.sentence.replace("not proven", "") or faults, seed
        if kind in SURELY:
            assert faults or proof.violations, seed
    assert forged >= 10


def _forged(plan: PlanFile, best: int | None, source: random.Random) -> PlanFile | None:
    """The same answer with a false claim and no certificate: a bound above the optimum, or that there is no plan."""
    if best is None or plan.objective_us is None:
        return None
    impossible = {
        "status": Status.INFEASIBLE,
        "decision": None,
        "objective_us": None,
        "bound_us": None,
        "base_us": None,
        "certificate": None,
    }
    if source.random() < 0.3 or plan.objective_us <= 0:
        least = None if KINDS[plan.kind].budget is None else 2**50
        said = None if least is None else f"at least {least} bytes"
        return msgspec.structs.replace(plan, **impossible, least_budget_bytes=least, reason=said)
    return msgspec.structs.replace(
        plan,
        bound_us=best + source.randint(1, 5),
        certificate=None,
        status=Status.UNKNOWN,
        decision=None,
        objective_us=None,
    )


def test_claims_of_another_problem_s_plan_and_of_an_invalid_one_are_not_weighed() -> None:
    problem, plan, _ = answered("partition", 0)
    other = msgspec.structs.replace(plan, kind="swap")
    assert prove(problem, other, check_plan(problem, other)).claim is None
    wrong = msgspec.structs.replace(plan, decision={"layers": [99]})
    assert prove(problem, wrong, check_plan(problem, wrong)).sentence == "nothing is claimed"
