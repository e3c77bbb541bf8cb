"""`exact-layout`: never better than the optimum, its bound never above it, infeasible only where nothing fits."""

import math

import msgspec
import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.check import check_plan
from solvers.check.layout.judge import judge_layout
from solvers.ir import LayoutProblem, Limits, Status
from solvers.ir.codec import plan_file
from solvers.ir.solution import INTERRUPTED, INTERRUPTED_EARLY
from solvers.layout.evaluate import instance
from solvers.layout.exact.solver import NO_RELAXATION, TIME_UP, TOO_LARGE, UNCERTIFIED, ExactLayout, _Search
from solvers.layout.least import Least
from solvers.layout.make import Rank, problem_from_shape
from solvers.layout.search import Search
from tests.solvers.layout.brute_force import decisions, optimum, random_problem
from tests.solvers.layout.test_least import needs

LIMITS = Limits(time_s=math.inf, work=1)
"""Enough for all that is promised here, and the same on a busy machine."""
SEARCHING = ExactLayout(every_decision=0)


def paper_row(shape: str, hardware: str, batch: int) -> LayoutProblem:
    """A row of ProTrain's table 4, on four ranks."""
    return problem_from_shape(read_shape(shape), read_hardware(hardware), Rank(ranks=4), batch=batch)


def test_brute_force_agrees_with_the_search_and_its_bound() -> None:
    answers = {status: 0 for status in Status}
    for seed in range(100, 130):
        problem = random_problem(seed)
        solution, best = SEARCHING.solve(problem, LIMITS), optimum(problem)
        answers[solution.status] += 1
        judged = check_plan(problem, plan_file(solution, "layout", None))
        assert [said for said in judged.violations if "no decision" not in said] == [], seed
        assert (solution.status is Status.INFEASIBLE) == (best is None), seed
        if best is not None:
            assert solution.objective is not None and solution.bound is not None, seed
            assert solution.bound <= best <= solution.objective, seed
    assert answers[Status.UNKNOWN] == 0
    assert answers[Status.OPTIMAL] > 3 * answers[Status.FEASIBLE]


def test_counting_is_exact() -> None:
    for seed in range(20):
        problem = random_problem(seed)
        solution, best = ExactLayout().solve(problem, Limits()), optimum(problem)
        assert solution.objective == best
        assert solution.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
        assert solution.certificate is not None
        assert solution.certificate["form"] in ("every-decision/1", "floor/1", "least-memory/1")
        said = check_plan(problem, plan_file(solution, "layout", None)).violations
        assert [violation for violation in said if "no decision" not in violation] == [], seed


def test_a_host_with_little_room_is_told_exactly_what_lacks() -> None:
    """Between the closed form and what is enough, an integer model finds the least device memory."""
    told = 0
    for seed in range(60):
        drawn = msgspec.structs.replace(random_problem(seed), host_bytes=3)
        problem = msgspec.structs.replace(drawn, device_bytes=Least(instance(drawn)).device_bytes)
        roomy = msgspec.structs.replace(problem, device_bytes=10**6)
        if optimum(problem) is not None:
            continue
        solution = SEARCHING.solve(problem, Limits())
        assert solution.status is Status.INFEASIBLE
        least = solution.least_budget_bytes
        assert least is not None and f"exactly {least} bytes are needed" in (solution.reason or "")
        assert optimum(msgspec.structs.replace(roomy, device_bytes=least)) is not None
        assert optimum(msgspec.structs.replace(roomy, device_bytes=least - 1)) is None
        told += 1
        if told == 5:
            break
    assert told == 5


def test_where_the_closed_form_says_at_least_both_memories_are_told_exactly() -> None:
    """Below it, too, the device memory with this host and the host memory with this device: held against all plans."""
    told = 0
    for seed in range(60):
        drawn = msgspec.structs.replace(random_problem(seed), host_bytes=3)
        closed = Least(instance(drawn))
        problem = msgspec.structs.replace(drawn, device_bytes=closed.device_bytes - 1)
        if closed.is_exact or problem.device_bytes < closed.roomy_bytes:
            continue
        solution, every = ExactLayout().solve(problem, Limits()), needs(problem)
        device = min(device for device, host in every if host <= problem.host_bytes)
        host = min(host for device, host in every if device <= problem.device_bytes)
        assert solution.least_budget_bytes == device
        assert (
            f"exactly {device} bytes are needed; the host has 3 bytes, and needs exactly {host} with this device"
            in (solution.reason or "")
        )
        said = check_plan(problem, plan_file(solution, "layout", None)).violations
        assert said == ("the answer is infeasible: there is no decision to judge",)
        told += 1
    assert told > 5


def test_without_time_its_plan_is_the_papers_at_least_and_it_says_so() -> None:
    row, tiny = paper_row("gpt2-1b", "protrain-3090", 64), random_problem(11)
    for problem in (row, tiny):
        solution, found = ExactLayout().solve(problem, Limits(time_s=0)), Search().solve(problem, Limits()).objective
        assert solution.objective is not None and found is not None
        assert solution.objective <= found
        assert solution.reason == TIME_UP


def test_a_row_of_the_paper_is_solved_to_its_optimum() -> None:
    """1B parameters, batch 64, four A100: fewer persistent chunks than the paper's, whose updates the cpus hide."""
    problem = paper_row("gpt2-1b", "protrain-a100", 64)
    solution = ExactLayout().solve(problem, LIMITS)
    assert solution.status is Status.OPTIMAL
    assert solution.plan is not None
    assert judge_layout(problem, solution.plan).objective_us == solution.bound
    found = Search().solve(problem, Limits()).objective
    assert found is not None and solution.objective is not None
    assert solution.objective <= found
    assert solution.certificate is not None and solution.certificate["form"] == "layout-tree/1"
    assert check_plan(problem, plan_file(solution, "layout", None)).clean


def test_what_the_engine_proves_without_a_certificate_is_no_bound() -> None:
    """1B, batch 8, four 3090: the tree of HiGHS says that the plan is optimal; nobody can add that up again."""
    problem = paper_row("gpt2-1b", "protrain-3090", 8)
    solution = ExactLayout().solve(problem, LIMITS)
    assert (solution.status, solution.objective, solution.bound) == (Status.FEASIBLE, 430_013, 428_083)
    assert solution.overhead_gap is not None and solution.overhead_gap < 0.05
    assert solution.reason == UNCERTIFIED.format(430_013)
    assert check_plan(problem, plan_file(solution, "layout", None)).clean


def test_work_makes_it_repeatable() -> None:
    problem = paper_row("gpt2-1b", "protrain-3090", 64)
    answers = [ExactLayout().solve(problem, Limits(time_s=math.inf, work=0.2, seed=7)) for _ in range(2)]
    assert answers[0].plan == answers[1].plan
    assert answers[0].bound == answers[1].bound
    assert answers[0].objective is not None and answers[0].bound is not None
    assert answers[0].bound <= answers[0].objective


@pytest.mark.parametrize(
    ("solver", "said"), [(ExactLayout("cpsat"), NO_RELAXATION), (ExactLayout(most_blocks=3), TOO_LARGE)]
)
def test_without_a_relaxation_the_cheap_bound_stays(solver: ExactLayout, said: str) -> None:
    problem = paper_row("gpt2-1b", "protrain-3090", 64)
    solution = solver.solve(problem, Limits(time_s=math.inf, work=0.1))
    assert solution.status is Status.FEASIBLE
    assert solution.reason == said
    assert solution.bound is not None and solution.bound > 0


def test_the_watcher_sees_progress_and_stops_it() -> None:
    problem, seen = paper_row("gpt2-1b", "protrain-3090", 64), []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append((incumbent, bound))
        return len(seen) >= 4

    solution = ExactLayout().solve(problem, Limits(), watch)
    assert len(seen) == 4
    assert solution.plan is not None
    assert solution.solve_time_s < 40  # of 60
    times = [incumbent for incumbent, _ in seen if incumbent is not None]
    assert times == sorted(times, reverse=True)


def test_an_interrupted_search_keeps_its_plan() -> None:
    problem, calls = paper_row("gpt2-1b", "protrain-3090", 64), []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        calls.append(incumbent)
        if incumbent is not None and len(calls) > 3:
            raise KeyboardInterrupt
        return False

    solution = ExactLayout().solve(problem, Limits(), watch)
    assert solution.status is Status.FEASIBLE
    assert solution.reason == INTERRUPTED


def test_an_interrupt_before_the_first_plan_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_Search, "_search", interrupted)
    solution = ExactLayout(every_decision=0).solve(paper_row("gpt2-1b", "protrain-3090", 64), Limits())
    assert solution.status is Status.UNKNOWN and solution.plan is None
    assert solution.reason == INTERRUPTED_EARLY


def test_a_gap_ends_the_search() -> None:
    problem = paper_row("gpt2-1b", "protrain-3090", 64)
    solution = ExactLayout().solve(problem, Limits(gap=0.9))
    assert solution.gap is not None and solution.gap <= 0.9
    assert solution.solve_time_s < 40  # of 60


def test_decisions_counted_are_those_of_the_problem() -> None:
    """A problem just at the limit is counted out, one beyond it is searched."""
    problem = random_problem(1)
    count = sum(1 for _ in decisions(problem))
    assert count <= 4000
    assert ExactLayout().solve(problem, LIMITS).engine is None
