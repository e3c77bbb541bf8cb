"""Host memory as a second budget: every solver keeps it, the judge counts it, brute force knows what is possible."""

import math
import re
from functools import cache

import msgspec
import pytest

from solvers.check import check_plan
from solvers.check.swap.judge import is_feasible, known_least_budget
from solvers.ir import InvalidInput, Limits, Solution, Status, Swap, SwapPlan, SwapProblem
from solvers.ir.codec import plan_file, problem_from_raw, problem_sha256, problem_to_raw
from solvers.ir.problem import with_host
from solvers.planner import build_solver, solver_names
from solvers.swap import host
from solvers.swap.cover import least_cover
from solvers.swap.evaluate import evaluate, instance
from solvers.swap.host import HostLoad, host_room
from solvers.swap.instances import llama2
from tests.solvers.swap.brute_force import (
    all_plans,
    host_need,
    hosted,
    launched,
    least_host,
    meaning,
    optimum,
    random_problem,
)

SEEDS = range(40)
LIMITS = Limits(time_s=math.inf, work=1.0, seed=1)


@cache
def tiny(seed: int) -> SwapProblem:
    problem = random_problem(seed)
    return hosted(launched(problem, seed) if seed % 3 == 0 else problem, seed)


@cache
def best_of(seed: int) -> int | None:
    return optimum(tiny(seed))


def solved(name: str, problem: SwapProblem) -> Solution[SwapPlan]:
    answer: Solution[SwapPlan] = build_solver(name, {}).solve(problem, LIMITS)
    return answer


def test_the_fast_recursion_refuses_what_brute_force_refuses() -> None:
    refused = 0
    for seed in SEEDS:
        problem = tiny(seed)
        for plan in list(all_plans(problem))[:40]:
            end, timeline = meaning(problem, plan), evaluate(instance(problem), plan)
            assert (timeline is None) == (end is None)
            free = msgspec.structs.replace(problem, host_budget_bytes=None)
            refused += end is None and meaning(free, plan) is not None
    assert refused > 30


@pytest.mark.parametrize("name", solver_names("swap"))
def test_solvers_keep_the_host_s_budget_and_say_rightly_when_none_can(name: str) -> None:
    found = {Status.OPTIMAL: 0, Status.FEASIBLE: 0, Status.INFEASIBLE: 0}
    for seed in SEEDS:
        problem, best = tiny(seed), best_of(seed)
        answer = solved(name, problem)
        found[answer.status] += 1
        file = plan_file(answer, "swap", problem_sha256(problem))
        violations = [one for one in check_plan(problem, file).violations if "no decision" not in one]
        assert violations == [], seed
        if answer.status is Status.INFEASIBLE:
            assert best is None, seed
            continue
        assert best is not None and answer.objective is not None, seed
        assert answer.objective >= best and (answer.bound is None or answer.bound <= best), seed
        if name == "milp-swap":
            assert answer.objective == best, seed
    assert found[Status.INFEASIBLE] > 5
    assert found[Status.OPTIMAL] + found[Status.FEASIBLE] > 20


def test_every_infeasible_answer_names_the_least_host_bytes() -> None:
    """Exactly, where the device's budget could be kept and only the host lacks memory."""
    exact = 0
    for seed in SEEDS:
        problem = tiny(seed)
        answer, needed = solved("greedy-swap", problem), least_host(problem)
        if answer.status is not Status.INFEASIBLE:
            continue
        reason = (answer.reason or "").replace("nothing of this step's peak can leave", "at least 0 bytes on the host")
        said = re.findall(r"(exactly|at least) (\d+) bytes", reason)
        assert len(said) == 2, answer.reason
        (_, device), (how, host) = said
        assert int(device) == answer.least_budget_bytes
        if needed is not None:
            assert int(host) <= needed
            assert how == "at least" or int(host) == needed
            exact += how == "exactly"
    assert exact > 3


def test_the_cover_needs_the_least_host_memory() -> None:
    checked = 0
    for seed in SEEDS:
        problem = tiny(seed)
        needed = least_host(problem)
        if needed is None or not instance(problem).busy:
            continue
        for engine in ("cpsat", "highs"):
            cover = least_cover(instance(problem), LIMITS, engine)
            assert cover.selected is not None
            assert cover.need_bytes == needed == host_need(problem, cover.selected), (seed, engine)
            assert cover.least_bytes <= needed
        checked += 1
    assert checked > 20


def test_the_judge_knows_when_a_plan_surely_exists() -> None:
    sure = 0
    for seed in SEEDS:
        problem = tiny(seed)
        if is_feasible(problem):
            assert best_of(seed) is not None, seed
            sure += 1
        low, high = known_least_budget(problem)
        assert optimum(msgspec.structs.replace(problem, budget_bytes=high)) is not None
        assert low == 0 or optimum(msgspec.structs.replace(problem, budget_bytes=low - 1)) is None
    assert sure > 20


def test_a_set_that_grows_tensor_by_tensor_takes_what_the_whole_takes() -> None:
    for seed in SEEDS:
        problem = tiny(seed)
        room = host_room(problem)
        assert room is not None
        load, chosen = HostLoad(room, len(problem.ops)), list[int]()
        for tensor in range(len(problem.tensors)):
            fits = load.fits(tensor)
            assert fits == (host_need(problem, [*chosen, tensor]) <= room.budget)
            if fits:
                load.add(tensor)
                chosen.append(tensor)
        assert room.need_bytes(chosen) == host_need(problem, chosen)


@pytest.mark.parametrize("rounding", ["exact", "power-of-two"])
def test_a_large_instance_is_planned_within_a_host_budget(rounding: str) -> None:
    """640 tensors, of which the host has room for fewer than the heuristic would like to have there."""
    plain = llama2(budget_fraction=0.6)
    free = solved("greedy-swap", plain)
    assert free.plan is not None
    index = {tensor.id: number for number, tensor in enumerate(plain.tensors)}
    counted = msgspec.structs.replace(plain, host_rounding=rounding)
    need = host_need(counted, [index[swap.tensor] for swap in free.plan.swaps])
    floor = max(plain.memory_bytes) - plain.budget_bytes
    budget = (floor + need) // 2
    assert floor < budget < need
    tight = msgspec.structs.replace(counted, host_budget_bytes=budget)
    for name in ("greedy-swap", "capuchin-swap"):
        answer = solved(name, tight)
        assert answer.plan is not None, answer.reason
        assert host_need(tight, [index[swap.tensor] for swap in answer.plan.swaps]) <= budget
    hopeless = msgspec.structs.replace(counted, host_budget_bytes=floor - 1)
    answer = solved("greedy-swap", hopeless)
    assert answer.status is Status.INFEASIBLE
    assert "or give the host at least" in str(answer.reason)


def test_files_without_the_fields_read_and_hash_as_before() -> None:
    problem = random_problem(3)
    raw = problem_to_raw(problem)
    assert "host_budget_bytes" not in raw
    assert "host_rounding" not in raw
    limited = with_host(problem, {"host_budget_bytes": 7, "host_rounding": "power-of-two"})
    assert problem_from_raw(problem_to_raw(limited), "it") == limited
    assert problem_sha256(limited) != problem_sha256(problem)
    with pytest.raises(InvalidInput, match="host_rounding"):
        problem_from_raw({**raw, "host_rounding": "half"}, "it")


def test_kinds_without_host_memory_say_so() -> None:
    with pytest.raises(InvalidInput, match="swap problems have no host_bytes: leave it out"):
        with_host(random_problem(3), {"host_bytes": 7})


def test_what_a_plan_takes_of_the_host_is_told_whatever_the_limit() -> None:
    """The brute force's figure, of exact bytes and of blocks of powers of two, though the problem has no limit."""
    for seed in range(10):
        problem = tiny(seed)
        plan = SwapPlan(swaps=tuple(Swap(tensor=t.id, swap_in_at=t.first_backward_use) for t in problem.tensors))
        for rounding in ("exact", "power-of-two"):
            limited = msgspec.structs.replace(problem, host_budget_bytes=1, host_rounding=rounding)
            free = msgspec.structs.replace(problem, host_budget_bytes=None, host_rounding="exact")
            found = host.host_need(free, plan, rounded=rounding == "power-of-two")
            assert found == host_need(limited, range(len(problem.tensors)))
