"""Whatever the cluster, each solver's plan passes the judge with its objective, and no answer is a traceback."""

import msgspec
import pytest
from hypothesis import given, settings

from solvers.check.replan.judge import judge_replan
from solvers.ir import Limits, ReplanPlan, ReplanProblem, Solution, Solver, Status
from solvers.ir.solution import Call
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.answers import better, dynamic, why_none
from solvers.replan.exact.solver import ExactReplan
from solvers.replan.oobleck import Oobleck
from solvers.replan.recycle import Recycle
from solvers.replan.reroute import Reroute
from solvers.replan.symmetric import Symmetric
from tests.solvers.replan.brute_force import optimum, random_problem
from tests.solvers.replan.clusters import before, grid
from tests.strategies import replan_problems

LIMITS = Limits(seed=3)
SOLVERS: list[Solver[ReplanProblem, Solution[ReplanPlan]]] = [
    Algorithm1(),
    Algorithm1(delta=0, most_placements=1),
    Reroute(),
    Oobleck(),
    Oobleck(faults=2, batches="equal", below="stop"),
    Oobleck(batches="proportional", most_instantiations=1),
    Recycle(),
    Recycle(lost_stage="replan"),
    Symmetric(),
    Symmetric(batches="equal"),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@settings(max_examples=150, deadline=None)
@given(problem=replan_problems())
def test_every_plan_passes_the_judge(
    solver: Solver[ReplanProblem, Solution[ReplanPlan]], problem: ReplanProblem
) -> None:
    if problem.current is None and problem.data_parallel is None:
        problem = msgspec.structs.replace(problem, data_parallel=1)
    solution = solver.solve(problem, LIMITS)
    assert solution.bound is None
    assert solution.seed == 3
    if solution.plan is None:
        assert solution.reason
        return
    verdict = judge_replan(problem, solution.plan)
    assert verdict.violations == ()
    assert verdict.objective_us == solution.objective
    assert solution.status is Status.FEASIBLE


@pytest.mark.parametrize("seed", range(120))
def test_infeasible_is_said_only_where_nothing_is_valid(seed: int) -> None:
    problem = random_problem(seed)
    proof = why_none(problem)
    if proof is not None:
        assert optimum(problem) is None
        assert all(s.solve(problem, LIMITS).status is Status.INFEASIBLE for s in SOLVERS if _can_read(s, problem))
    for solver in SOLVERS:
        if _can_read(solver, problem):
            solution = solver.solve(problem, LIMITS)
            best = optimum(problem)
            assert solution.status is not Status.INFEASIBLE or best is None
            assert solution.objective is None or (best is not None and solution.objective >= best)


def _can_read(solver: object, problem: ReplanProblem) -> bool:
    return not isinstance(solver, Algorithm1) or problem.current is not None or problem.data_parallel is not None


def test_proofs_say_what_is_missing() -> None:
    lost = grid(2, 2, 4, 4, failed=[1, 3])
    assert "no holder alive" in (why_none(lost) or "")
    sharded = grid(2, 2, 4, 4, failed=[1], sharded_optimizer=True)
    assert "no replica" in (why_none(sharded) or "")
    small = before(grid(2, 2, 4, 4, memory_bytes=900))
    assert "up to 4 stages on 4 nodes need exactly 1400 bytes" in (why_none(small) or "")
    deep = before(grid(2, 1, 8, 4, memory_bytes=3500))
    assert "up to 8 stages on 2 nodes need exactly 4800 bytes" in (why_none(deep) or "")
    assert "nothing can be trained" in (why_none(grid(2, 2, 4, 4, expected_interval_us=0)) or "")


def test_all_solvers_say_alike_how_much_memory_is_needed() -> None:
    """And no more stages than there are layers, however deep pipelines may be; so many bytes are then enough."""
    scarce = before(grid(2, 2, 8, 4, memory_bytes=900, max_depth=10**6))
    reasons = {solver.solve(scarce, LIMITS).reason for solver in [*SOLVERS, ExactReplan()]}
    assert reasons == {why_none(scarce)}
    said = reasons.pop() or ""
    assert "up to 8 stages on 4 nodes" in said
    need = int(said.split("exactly ")[1].split(" ")[0])
    enough = msgspec.structs.replace(scarce, memory_bytes=need)
    assert why_none(enough) is None and ExactReplan().solve(enough, LIMITS).status is Status.OPTIMAL


def test_a_restart_longer_than_the_interval_leaves_rerouting_only() -> None:
    uneven = grid(2, 2, 4, 4, failed=[0], expected_interval_us=1000)
    assert why_none(uneven) is None
    assert Algorithm1().solve(uneven, LIMITS).plan == ReplanPlan(policy="reroute", pipelines=(), transfers=None)
    counted = msgspec.structs.replace(uneven, microbatches=5)
    assert "a restart takes 1000 us" in (why_none(counted) or "")


def test_a_transition_that_never_pays_is_no_plan() -> None:
    slow = grid(2, 2, 4, 4, failed=[0], expected_interval_us=5000, bytes_per_s=100_000)
    solution = dynamic(Call("algorithm1", LIMITS), slow, [((1, 3), 4)])
    assert solution.status is Status.UNKNOWN
    assert "the expected interval is 5000 us" in (solution.reason or "")


def test_the_better_answer_is_the_one_with_a_plan_of_less_objective() -> None:
    with_plan = Symmetric().solve(grid(2, 2, 4, 4, failed=[0]), LIMITS)
    without = Symmetric().solve(grid(2, 2, 4, 4, failed=[0, 2]), LIMITS)
    dearer = msgspec.structs.replace(with_plan, objective=(with_plan.objective or 0) + 1)
    assert better(without, with_plan) is with_plan
    assert better(with_plan, without) is with_plan
    assert better(dearer, with_plan) is with_plan
    assert better(with_plan, with_plan) is with_plan
