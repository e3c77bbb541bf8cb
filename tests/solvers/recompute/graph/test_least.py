"""The largest working set: a lower bound on the least budget, exact more often than not, given at once."""

from msgspec.structs import replace

from solvers.ir import Limits, RecomputeGraphProblem, RecomputeOp, Status
from solvers.planner import SOLVERS, build_solver
from solvers.recompute.graph.instances import random_layered
from solvers.recompute.graph.least import forced, least_budget_bytes
from solvers.recompute.graph.replay import instance
from tests.solvers.recompute.graph.brute_force import general, layered, least_feasible_budget


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False) -> RecomputeOp:
    return RecomputeOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm)


def test_never_above_the_least_feasible_budget_and_often_equal() -> None:
    equal = 0
    for seed in range(100):
        problem = layered(seed, 2) if seed % 2 else general(seed)
        bound, true = least_budget_bytes(problem), least_feasible_budget(problem)
        assert bound <= true
        equal += bound == true
    assert equal >= 60


def test_what_a_chain_of_communications_reads_is_there_before_it() -> None:
    """Ops 3 and 4 communicate; 4 reads op 0, which takes 5 us and cannot be hidden behind op 3's 4 us.

    So stage 2 ends with ops 0 and 1 (read by 3) in memory beside op 2 and its input 1: 8 + 4 + 2 = 14 bytes, 1 static.
    """
    ops = (op(5, 8), op(1, 4), op(1, 2, 1), op(4, 1, 1, comm=True), op(3, 1, 0, comm=True))
    problem = RecomputeGraphProblem(name="chain", budget_bytes=14, static_bytes=1, ops=ops)
    assert forced(instance(problem)) == [set(), set(), set(), {0, 1}, {0}]
    assert least_budget_bytes(problem) == 15 == least_feasible_budget(problem)


def test_every_solver_refuses_a_working_set_above_the_budget_at_once() -> None:
    large = random_layered(1000, width=6)
    least = least_budget_bytes(large)
    problem = replace(large, budget_bytes=least - 1)
    for name, entry in SOLVERS.items():
        if entry.kind == "recompute-graph":
            solution = build_solver(name, {}).solve(problem, Limits())
            assert solution.status is Status.INFEASIBLE, name
            assert solution.least_budget_bytes == least
            assert f"at least {least} bytes" in (solution.reason or "")
