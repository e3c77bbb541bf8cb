"""All solvers of the room on the same clusters: who is best, what is proven, and that the judge agrees with all."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from solvers.check import check_plan
from solvers.ir import CurrentPipeline, CurrentState, InvalidInput, Limits, ReplanProblem, Solution, Status
from solvers.ir.codec import plan_file
from solvers.ir.fields import LARGEST
from solvers.planner import build_solver, solver_names
from solvers.replan.instances import INSTANCES, Model
from tests.solvers.replan.brute_force import optimum, random_problem
from tests.strategies import replan_problems

NAMES = solver_names("replan")
EXACT = "exact-replan"
LIMITS = Limits(time_s=20, seed=5)


def answer(name: str, problem: ReplanProblem) -> Solution[Any] | None:
    """The solver's answer, judged; None where it refuses the problem, which only Algorithm 1 may."""
    try:
        solution = build_solver(name, {}).solve(problem, LIMITS)
    except InvalidInput as error:
        assert name == "algorithm1" and problem.data_parallel is None and problem.current is None, error
        return None
    verdict = check_plan(problem, plan_file(solution, "replan", None))
    if solution.plan is None:
        assert [said for said in verdict.violations if "no decision" not in said] == [], name
        assert solution.reason, name
    else:
        assert verdict.violations == (), name
        assert verdict.objective_us == solution.objective, name
    assert solution.base is None and solution.least_budget_bytes is None  # formats.md 2.8
    return solution


def agree(problem: ReplanProblem) -> Solution[Any]:
    """All answers fit together: the exact one is the best, and none contradicts another's proof. It is returned."""
    best = answer(EXACT, problem)
    assert best is not None
    for name in NAMES:
        solution = best if name == EXACT else answer(name, problem)
        if solution is None:
            continue
        if solution.objective is not None:
            assert best.objective is not None and best.objective <= solution.objective, name
            assert best.bound is not None and best.bound <= solution.objective, name
        if solution.status is Status.INFEASIBLE:
            assert best.status is Status.INFEASIBLE, (name, solution.reason)
    return best


@pytest.mark.parametrize("name", INSTANCES)
def test_the_shipped_instances(name: str) -> None:
    best = agree(INSTANCES[name]())
    assert best.gap is not None and best.gap < 1e-3


def test_random_clusters_are_solved_to_the_optimum_of_brute_force() -> None:
    """Infeasible if and only if nothing that can be tried is valid."""
    found = []
    for seed in range(100, 400):
        problem = random_problem(seed)
        best = agree(problem)
        assert best.status in (Status.OPTIMAL, Status.INFEASIBLE), seed
        assert best.objective == optimum(problem), seed
        found.append(best.status)
    assert min(found.count(Status.OPTIMAL), found.count(Status.INFEASIBLE)) >= 40


def larger_problem(seed: int) -> ReplanProblem:
    """Up to 33 nodes with a head, of which at most four have failed."""
    source = random.Random(seed)
    depth, data = source.randint(1, 5), source.randint(1, 6)
    layers, share = source.randint(max(4, depth), 24), source.randint(1, 8)
    failed = tuple(sorted(source.sample(range(depth * data), source.randint(0, min(4, depth * data - 1)))))
    model = Model(layers=layers, vocab=source.choice([1, 32_000, 128_000]))
    problem = model.after(f"larger {seed}", depth, data, share * data, failed)
    return msgspec.structs.replace(
        problem,
        nodes=problem.nodes + source.choice([0, 0, 1, 3]),
        memory_bytes=source.choice([1 << 60, problem.memory_bytes, problem.memory_bytes // 2]),
        restart_us=source.choice([0, 10**5, 10**7]),
        expected_interval_us=source.choice([10**7, 10**9, 10**11]),
    )


def test_larger_clusters_and_what_becomes_of_them_when_more_fails() -> None:
    """The exact answer becomes the running state, loses nodes, and is asked again."""
    again = 0
    for seed in range(25):
        problem = larger_problem(seed)
        best = agree(problem)
        if best.plan is None or best.plan.policy == "reroute":
            continue
        source = random.Random(seed)
        pipelines = tuple(
            CurrentPipeline(layers=one.layers, nodes=one.nodes, microbatches=one.microbatches)
            for one in best.plan.pipelines
        )
        nodes = [node for one in pipelines for node in one.nodes]
        failed = tuple(source.sample(nodes, min(len(nodes) - 1, 2)))
        state = CurrentState(pipelines=pipelines, failed=failed)
        agree(
            msgspec.structs.replace(
                problem, current=state, nodes=max(1, problem.nodes - len(failed)), data_parallel=None
            )
        )
        again += 1
    assert again >= 10


@settings(max_examples=150, deadline=None)
@given(replan_problems())
def test_any_well_formed_problem_is_answered(problem: ReplanProblem) -> None:
    """Larger than the random ones, and with idle nodes, unlike pipelines and microbatches that do not add up."""
    best = agree(problem)
    assert best.status is not Status.UNKNOWN


def scaled(problem: ReplanProblem, factor: int) -> ReplanProblem:
    """Every time and every size that often."""
    fields: dict[str, Any] = {}
    for name in problem.__struct_fields__:
        value = getattr(problem, name)
        if name.endswith(("_us", "_bytes")) and value is not None:
            fields[name] = tuple(factor * part for part in value) if isinstance(value, tuple) else factor * value
    return msgspec.structs.replace(problem, **fields)


@pytest.mark.parametrize("name", NAMES)
def test_times_and_sizes_at_the_edge_of_what_files_hold(name: str) -> None:
    """Nothing overflows: a problem with all of it 2³⁰ times has the same answer, that often, but for rounding up."""
    factor, answered = 1 << 30, 0
    for seed in range(30):
        problem = random_problem(seed)
        small, large = answer(name, problem), answer(name, scaled(problem, factor))
        assert (small is None) == (large is None)
        if small is None or large is None:
            continue
        assert (small.objective is None) == (large.objective is None)
        if small.objective is not None and large.objective is not None:
            assert factor * (small.objective - 1) < large.objective <= factor * small.objective
            answered += 1
    assert answered >= 10


def test_the_longest_times_and_the_largest_sizes_of_all() -> None:
    """One layer and one microbatch whose passes are as long as a file can say, on nodes as large."""
    problem = msgspec.structs.replace(
        INSTANCES["replan-figure-3"](),
        current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None, data_parallel=1, max_depth=1,
        layers=1, microbatches=1, nodes=1, forward_us=LARGEST - 1, backward_us=1, layer_sync_us=0,
        memory_bytes=LARGEST, layer_static_bytes=LARGEST - 1, layer_activation_bytes=1,
    )  # fmt: skip
    for name in NAMES:
        solution = answer(name, problem)
        assert solution is not None
        if name not in ("reroute", "recycle"):  # which need pipelines that ran
            assert solution.objective == LARGEST, name


def test_the_same_seed_gives_the_same_plan() -> None:
    for name in NAMES:
        for seed in range(20):
            first, second = (answer(name, random_problem(seed)) for _ in range(2))
            assert first is None or second is None or (first.plan, first.bound) == (second.plan, second.bound)


def test_a_watch_that_stops_at_once_still_gets_an_honest_answer() -> None:
    for name in NAMES:
        problem = INSTANCES["replan-8-to-7"]()
        solution = build_solver(name, {}).solve(problem, LIMITS, lambda *_: True)
        verdict = check_plan(problem, plan_file(solution, "replan", None))
        assert solution.status is not Status.INFEASIBLE
        assert solution.plan is None or verdict.violations == (), name


@pytest.mark.parametrize("limit", [0, 1e-9, 0.01])
def test_no_time_is_no_proof_of_anything(limit: float) -> None:
    problem = INSTANCES["replan-2048"]()
    for name in NAMES:
        solution = build_solver(name, {}).solve(problem, Limits(time_s=limit))
        verdict = check_plan(problem, plan_file(solution, "replan", None))
        assert solution.status is not Status.INFEASIBLE
        assert solution.plan is None or verdict.violations == (), name
