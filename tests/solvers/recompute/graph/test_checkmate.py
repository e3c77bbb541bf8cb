"""checkmate: the best plan that hides nothing, and bounds that are true of all plans."""

from solvers.check import check_plan
from solvers.ir import Limits, Status
from solvers.ir.codec import plan_file
from solvers.recompute.graph.checkmate import Checkmate, can_hide
from solvers.recompute.graph.replay import instance
from tests.solvers.recompute.graph.brute_force import optimum, random_problem


def test_no_better_plan_without_overlap_and_no_false_bound() -> None:
    """Its plan is the best walk that recomputes nothing during communications, its bound below the best of all."""
    dearer = 0
    for seed in range(100):
        problem = random_problem(seed)
        solution = Checkmate().solve(problem, Limits(time_s=60))
        best, without = optimum(problem), optimum(problem, overlap=False)
        assert solution.objective == without, seed
        if solution.plan is None:
            assert solution.status is (Status.UNKNOWN if best is not None else solution.status)
            continue
        assert check_plan(problem, plan_file(solution, problem.KIND, None)).violations == ()
        assert best is not None and without is not None and solution.bound is not None
        assert solution.bound <= best
        dearer += without > best
        again = {(t, i) for t, i in solution.plan.compute if i < t and problem.ops[t].comm}
        assert again == set()
        if not can_hide(instance(problem)):
            assert solution.status is Status.OPTIMAL
    assert dearer >= 20


def test_the_reason_says_what_was_proved() -> None:
    solution = Checkmate().solve(random_problem(4), Limits())
    assert solution.status is Status.FEASIBLE and solution.reason is not None
    assert f"no plan without overlap takes less than {solution.objective} us" in solution.reason
