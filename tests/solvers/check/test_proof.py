"""Claims of every kind: true ones are proven or said to be only claimed; forged ones are never called proven."""

import copy
import math
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from solvers.check import check_plan, prove
from solvers.check.plan import judge_of
from solvers.ir import Limits, Status
from solvers.ir.codec import PlanFile, plan_file
from solvers.ir.errors import InvalidInput
from solvers.kinds import KINDS
from solvers.planner import SOLVERS, build_solver
from tests.contract import contract_of

SURELY = ("partition", "recompute-layer")
"""Kinds whose claims the judge always decides itself."""
SEEDS = 30
Forgery = tuple[str, PlanFile]


@cache
def answered(kind: str, seed: int) -> tuple[Any, PlanFile, int | None]:
    contract = contract_of(kind)
    problem = contract.tiny(seed)
    names = {SOLVERS[name].kind: name for name in contract.exact}
    names |= {"pipeline": "bayplan", "recompute-layer": "heu", "recompute-graph": "opt", "joint": "joint"}
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


def test_forged_claims_of_every_kind_are_contradicted_or_called_claims() -> None:
    source, forged, contradicted = random.Random("forger"), Counter[str](), Counter[str]()
    by_kind = Counter[str]()
    for kind in KINDS:
        for seed in range(SEEDS):
            problem, plan, best = answered(kind, seed)
            for name, lie in _forged(plan, best, source):
                forged[name], by_kind[kind] = forged[name] + 1, by_kind[kind] + 1
                contradicted[name] += _seen(problem, lie, (kind, seed, name), surely=kind in SURELY)
    assert forged.total() >= 200
    assert min(by_kind[kind] for kind in KINDS) >= SEEDS
    assert forged.keys() == {"bound", "impossible", "least budget", "decision", "cut", "altered"}
    assert min(forged.values()) >= 20
    assert contradicted["decision"] == forged["decision"]


def _seen(problem: Any, lie: PlanFile, where: object, surely: bool) -> bool:
    """Whether the forgery is contradicted; it is at least not called proven."""
    try:
        verdict = check_plan(problem, lie)
    except InvalidInput:
        return True
    proof = prove(problem, lie, verdict)
    faults = [text for text in verdict.violations if "no decision to judge" not in text]
    assert faults or proof.violations or not proof.is_proven, where
    assert "proven" not in proof.sentence.replace("not proven", "") or faults, where
    if surely:
        assert faults or proof.violations, where
    return bool(faults or proof.violations)


def _forged(plan: PlanFile, best: int | None, source: random.Random) -> Iterator[Forgery]:
    """The same answer with one false claim each."""
    has_budget = KINDS[plan.kind].budget is not None
    if plan.status is Status.INFEASIBLE:
        if has_budget and plan.least_budget_bytes is not None:
            more = plan.least_budget_bytes + source.choice([1, 2, 10**15])
            exact = {"least_budget_bytes": more, "reason": f"exactly {more} bytes"}
            yield "least budget", replace(plan, **exact, certificate=None)
        return
    if best is None or plan.objective_us is None:
        return
    least = 2**50 if has_budget else None
    nothing = {"decision": None, "objective_us": None, "certificate": None}
    said = {"least_budget_bytes": least, "reason": None if least is None else f"at least {least} bytes"}
    yield "impossible", replace(plan, status=Status.INFEASIBLE, bound_us=None, base_us=None, **nothing, **said)
    above = best + source.randint(1, 5)
    yield "bound", replace(plan, status=Status.UNKNOWN, bound_us=above, **nothing)
    wrong = copy.deepcopy(plan.decision)
    if _one_number_grows(wrong, source):
        yield "decision", replace(plan, decision=wrong)
    if plan.certificate is not None:
        bound = {"status": Status.UNKNOWN, "decision": None, "objective_us": None, "bound_us": above}
        key = source.choice(sorted(plan.certificate))
        yield "cut", replace(plan, certificate={k: v for k, v in plan.certificate.items() if k != key}, **bound)
        altered = copy.deepcopy(plan.certificate)
        _one_number_grows(altered, source)
        yield "altered", replace(plan, certificate=altered, **bound)


def _one_number_grows(tree: Any, source: random.Random) -> bool:
    """Make one whole number in the tree far too large; False where there is none."""
    holders = [(tree, key) for key in _keys(tree)]
    places = []
    while holders:
        holder, key = holders.pop()
        value = holder[key]
        if isinstance(value, int) and not isinstance(value, bool):
            places.append((holder, key))
        holders += [(value, inner) for inner in _keys(value)]
    if places:
        holder, key = source.choice(places)
        holder[key] += 10**6
    return bool(places)


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value)
    return list(range(len(value))) if isinstance(value, list) else []


@pytest.mark.parametrize("kind", ["recompute-graph", "recompute-layer"])
@pytest.mark.parametrize("said", ["exactly", "at least"])
def test_a_least_budget_that_something_fits_below_is_contradicted(kind: str, said: str) -> None:
    least, found, false = 10**15, 0, 0
    for seed in range(SEEDS):
        problem, plan, _ = answered(kind, seed)
        if plan.status is not Status.INFEASIBLE:
            continue
        found += 1
        assert prove(problem, plan, check_plan(problem, plan)).sentence == "infeasibility: proven", seed
        lie = replace(plan, least_budget_bytes=least, reason=f"{said} {least} bytes", certificate=None)
        proof = prove(problem, lie, check_plan(problem, lie))
        assert not proof.is_proven, seed
        false += proof.violations == (f"least_budget_bytes is {least}, but a decision fits into {least - 1} bytes",)
    assert found > 1
    assert false == found if kind in SURELY else false > 1  # a graph with too many walks stays open


@pytest.mark.parametrize("kind", ["pipeline", "layout"])
def test_a_least_budget_between_what_the_judge_knows_is_not_called_proven(kind: str) -> None:
    least_of, field = judge_of(kind).least_budget_bytes, KINDS[kind].budget
    assert least_of is not None
    assert field is not None
    between = 0
    for seed in range(100):
        problem, plan = _starved(contract_of(kind).tiny(seed), answered(kind, 0)[1])
        low, high = least_of(problem)
        assert low > getattr(problem, field)
        for said, least in (("exactly", low + 1), ("at least", low + 1), ("exactly", high), ("exactly", low)):
            lie = replace(plan, least_budget_bytes=least, reason=f"{said} {least} bytes", certificate=None)
            proof = prove(problem, lie, check_plan(problem, lie))
            assert proof.is_proven == (low == high == least), (seed, said, least)
            between += low < least <= high and not proof.is_proven
        true = replace(plan, least_budget_bytes=low, reason=f"at least {low} bytes", certificate=None)
        assert prove(problem, true, check_plan(problem, true)).sentence == "infeasibility: proven"
    assert between > 3


def _starved(problem: Any, plan: PlanFile) -> tuple[Any, PlanFile]:
    """The problem with no memory at all, and an answer that says so."""
    if plan.kind == "pipeline":
        starved = replace(problem, stages=tuple(replace(stage, budget_bytes=1) for stage in problem.stages))
    else:
        starved = replace(problem, device_bytes=1)
    nothing = {"decision": None, "objective_us": None, "certificate": None, "bound_us": None, "base_us": None}
    return starved, replace(plan, status=Status.INFEASIBLE, problem_sha256=None, **nothing)


def test_a_least_budget_called_exact_must_fit_something() -> None:
    problem, plan = next(
        (problem, plan)
        for problem, plan, _ in (answered("recompute-layer", seed) for seed in range(SEEDS))
        if plan.status is Status.INFEASIBLE
    )
    assert plan.least_budget_bytes is not None
    short = replace(problem, budget_bytes=problem.budget_bytes - 1)  # so that one byte less is still above the budget
    less = plan.least_budget_bytes - 1
    for said, sentence in (("at least", "proven"), ("exactly", "claimed, and false")):
        lie = replace(plan, least_budget_bytes=less, reason=f"{said} {less} bytes", problem_sha256=None)
        assert prove(short, lie, check_plan(short, lie)).sentence == f"infeasibility: {sentence}"


def test_claims_of_another_problem_s_plan_and_of_an_invalid_one_are_not_weighed() -> None:
    problem, plan, _ = answered("partition", 0)
    other = replace(plan, kind="swap")
    assert prove(problem, other, check_plan(problem, other)).claim is None
    wrong = replace(plan, decision={"layers": [99]})
    assert prove(problem, wrong, check_plan(problem, wrong)).sentence == "nothing is claimed"
