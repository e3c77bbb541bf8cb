"""`opt`: its certificates add up in the hands of the judge, its bounds bound, and it stops when it is told to."""

import json
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from solvers.check import Verdict, check_plan
from solvers.ir import Limits, RecomputeGraphPlan, RecomputeGraphProblem, Solution, Status
from solvers.ir.codec import plan_file, plan_from_raw, plan_to_raw, problem_sha256, read_problem
from solvers.ir.errors import InvalidInput
from solvers.recompute.graph import Opt, OptMilp
from tests.solvers.recompute.graph.brute_force import optimum, random_problem
from tests.solvers.recompute.graph.layered import least_and_most, transformer

SMALL = Limits(time_s=math.inf, work=0.5)


def judged(problem: RecomputeGraphProblem, solution: Solution[RecomputeGraphPlan]) -> Verdict:
    raw = plan_to_raw(plan_file(solution, problem.KIND, problem_sha256(problem)))
    return check_plan(problem, plan_from_raw(json.loads(json.dumps(raw))))


@pytest.mark.parametrize("time_s", [20.0, 0.05])
def test_certificates_add_up_however_early_the_search_ends(time_s: float) -> None:
    certified = 0
    for seed in range(24):
        problem = random_problem(seed)
        solution = Opt().solve(problem, Limits(time_s=time_s, work=0.5))
        if solution.certificate is None:
            continue
        certified += 1
        sentences = [text for text in judged(problem, solution).violations if "no decision" not in text]
        assert sentences == [], seed
    assert certified > 5


def test_a_raised_bound_is_refused() -> None:
    problem = transformer(layers=4, position=0.2)
    solution = Opt().solve(problem, SMALL)
    assert solution.objective is not None
    assert solution.bound is not None
    assert judged(problem, solution).violations == ()
    assert solution.bound < solution.objective
    raised = replace(solution, bound=solution.bound + 1)
    assert "the certificate proves only" in judged(problem, raised).violations[0]


def test_answers_of_small_graphs_lie_between_the_bound_and_the_optimum() -> None:
    met = 0
    for seed in range(40):
        problem = random_problem(seed)
        best, solution = optimum(problem), Opt().solve(problem, SMALL)
        if best is None:
            assert solution.status in (Status.INFEASIBLE, Status.UNKNOWN), seed
            continue
        assert solution.bound is not None
        assert solution.bound <= best, seed
        assert solution.objective is None or solution.objective >= best, seed
        met += solution.objective == best
    assert met >= 18


def test_layers_are_planned_within_a_few_percent_of_the_exact_model() -> None:
    problem = transformer(layers=2, position=0.4)
    exact = OptMilp().solve(problem, Limits(time_s=math.inf))
    solution = Opt().solve(problem, SMALL)
    assert solution.objective is not None
    assert exact.bound is not None
    assert exact.objective is not None
    assert solution.bound is not None
    assert solution.bound <= exact.objective
    assert solution.objective >= exact.bound
    assert solution.objective <= 1.03 * exact.objective


def test_a_loose_budget_needs_no_search_and_one_below_the_working_set_is_refused_at_once() -> None:
    problem = transformer(layers=3, position=0.5)
    least, most = least_and_most(problem)
    loose = Opt().solve(replace(problem, budget_bytes=most), Limits(time_s=5.0))
    assert (loose.status, loose.objective) == (Status.OPTIMAL, loose.base)
    tight = Opt().solve(replace(problem, budget_bytes=least - 1), Limits(time_s=5.0))
    assert tight.status is Status.INFEASIBLE
    assert tight.least_budget_bytes is not None
    assert f"at least {tight.least_budget_bytes} bytes" in (tight.reason or "")


def test_a_watch_stops_it_and_keeps_the_best_plan() -> None:
    problem = transformer(layers=4, position=0.3)
    seen: list[float | None] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(incumbent)
        return incumbent is not None

    solution = Opt().solve(problem, Limits(time_s=60.0), watch)
    assert solution.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert seen[-1] is not None
    assert judged(problem, solution).violations == ()


def test_the_same_work_gives_the_same_plan() -> None:
    problem = transformer(layers=4, position=0.4)
    first, second = (Opt().solve(problem, Limits(time_s=math.inf, work=0.2, seed=5)) for _ in range(2))
    assert (first.plan, first.bound, first.certificate) == (second.plan, second.bound, second.certificate)


@pytest.mark.parametrize("work", [0.0, 0.002])
def test_next_to_no_work_is_an_answer_too(work: float) -> None:
    problem = transformer(layers=2, position=0.4)
    solution = Opt().solve(problem, Limits(time_s=math.inf, work=work))
    assert solution.status in (Status.FEASIBLE, Status.UNKNOWN)
    assert judged(problem, solution).violations == ()


def test_ops_without_time_windows_of_seconds_and_outputs_that_nobody_reads_are_no_trouble() -> None:
    problem = transformer(layers=3, position=0.5)
    idle = [replace(op, time_us=0) if "add" in op.name else op for op in problem.ops]
    slow = [replace(op, time_us=op.time_us * 10_000_019) for op in problem.ops]
    unread = [
        replace(op, inputs=tuple(j for j in op.inputs if problem.ops[j].name != "dropout")) if "'" in op.name else op
        for op in problem.ops
    ]
    for ops in (idle, slow, unread):
        changed = replace(problem, ops=tuple(ops))
        solution = Opt().solve(changed, Limits(time_s=math.inf, work=0.2))
        assert solution.plan is not None
        assert judged(changed, solution).violations == ()


def test_an_engine_without_duals_is_refused() -> None:
    with pytest.raises(InvalidInput, match="choose highs, gurobi or auto"):
        Opt(engine="cpsat").solve(transformer(layers=2, position=0.5), SMALL)


def test_an_output_that_nobody_reads_again_is_no_trouble() -> None:
    """A chain of a few operators whose layers hold one; its optimum is that of `opt-milp`."""
    problem, _ = read_problem(Path(__file__).parent / "instances" / "unused-output.json")
    assert isinstance(problem, RecomputeGraphProblem)
    answer = Opt().solve(problem, Limits(time_s=math.inf, work=1.0))
    assert answer.objective == 69
    assert check_plan(problem, plan_file(answer, problem.KIND, None)).clean


def test_without_time_there_is_still_a_plan() -> None:
    """The search ends before it has one; a pass over the stages needs some milliseconds more."""
    problem = transformer(layers=4, position=0.4)
    answer = Opt().solve(problem, Limits(time_s=0.0))
    assert answer.status is Status.FEASIBLE
    assert judged(problem, answer).clean
