"""Between a graph and a plan that may be executed: budgets, starts, and judges that are believed."""

from dataclasses import dataclass
from typing import Any

import pytest

from experiments.compose import read_settings
from experiments.config import ProblemConf
from experiments.hardware import read_hardware
from experiments.planning import best_start, make_problem, make_solvers, prepare
from solvers.ir import BayplanError, InvalidInput, Limits, Op, OpGraph, Solution, Status, Swap, SwapPlan, SwapProblem
from solvers.ir.swap import SwapLink, SwapOp, SwapTensor

GRAPH = OpGraph(
    name="g",
    ops=tuple(Op(name=f"o{number}", phase="forward", time_us=10) for number in range(4)),
    tensors=(),
    memory_bytes=(40, 80, 100, 80),
)
PROBLEM = SwapProblem(
    name="p",
    budget_bytes=80,
    ops=tuple(SwapOp(name=f"o{number}", time_us=10, phase="forward") for number in range(4)),
    memory_bytes=GRAPH.memory_bytes,
    tensors=(
        SwapTensor(id=0, bytes=30, last_forward_use=0, first_backward_use=3),
        SwapTensor(id=1, bytes=20, last_forward_use=0, first_backward_use=3),
    ),
    link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
)


def plan(*swaps: tuple[int, int]) -> SwapPlan:
    return SwapPlan(swaps=tuple(Swap(tensor=tensor, swap_in_at=at) for tensor, at in swaps))


def test_a_budget_is_a_fraction_of_the_peak_or_bytes() -> None:
    hardware = read_hardware("sim-small")
    assert make_problem(ProblemConf(budget_fraction=0.55), GRAPH, hardware).budget_bytes == 55
    assert make_problem(ProblemConf(budget_bytes=77), GRAPH, hardware).budget_bytes == 77


def test_host_memory_is_limited_where_the_settings_say_so() -> None:
    hardware = read_hardware("sim-small")
    assert make_problem(ProblemConf(budget_bytes=77), GRAPH, hardware).host_budget_bytes is None
    assert make_problem(ProblemConf(budget_bytes=77, host_budget_bytes=9), GRAPH, hardware).host_budget_bytes == 9
    with pytest.raises(InvalidInput, match=r"problem\.host_budget_bytes is -1"):
        ProblemConf(budget_bytes=77, host_budget_bytes=-1)


def test_the_best_valid_plan_of_the_neighbours_is_where_a_solver_begins() -> None:
    plans = {"none": plan(), "large": plan((0, 3)), "small": plan((1, 3)), "foreign": plan((7, 3))}
    assert best_start(PROBLEM, plans) == plan((1, 3))  # swaps 20 bytes instead of 30: less to wait for
    assert best_start(PROBLEM, {"none": plan()}) is None
    assert best_start(PROBLEM, {}) is None


def test_a_solver_that_can_begin_from_a_plan_gets_it() -> None:
    settings = read_settings(["solver=[greedy-swap,milp-swap]"]).settings
    solvers: dict[str, Any] = dict(make_solvers(settings, plan((1, 3))))
    assert solvers["milp-swap"].start == plan((1, 3))
    assert not hasattr(solvers["greedy-swap"], "start")


def test_parameters_reach_the_solver() -> None:
    settings = read_settings(["solver=greedy-swap", "solver.greedy-swap.printed=true"]).settings
    solver: Any = make_solvers(settings)["greedy-swap"]
    assert solver.printed is True


def test_an_unknown_engine_is_refused() -> None:
    settings = read_settings(["solver=milp-swap", "solver.milp-swap.engine=cplex"]).settings
    with pytest.raises(InvalidInput, match="cplex"):
        make_solvers(settings)


@dataclass(frozen=True)
class Claims:
    """A solver that answers what it is told."""

    plan: SwapPlan | None
    objective: int | None
    status: Status = Status.FEASIBLE

    def solve(self, problem: SwapProblem, limits: Limits, watch: object = None) -> Solution[SwapPlan]:
        return Solution(status=self.status, plan=self.plan, objective=self.objective, solver="claims", base=40)


def test_a_good_answer_is_judged_lowered_and_predicted() -> None:
    prepared = prepare(Claims(plan((1, 3)), 70), PROBLEM, GRAPH, Limits())
    assert prepared.planned is not None and prepared.predicted is not None
    assert prepared.predicted.makespan_us == 70  # 10, 20 out, 10, 10, 20 in hidden by none: 10 more
    assert prepared.file.objective_us == 70


@pytest.mark.parametrize("claim", [Claims(plan((1, 3)), 69), Claims(plan(), 40), Claims(plan((1, 0)), 40)])
def test_a_false_or_invalid_answer_is_never_executed(claim: Claims) -> None:
    with pytest.raises(BayplanError, match="does not pass its check"):
        prepare(claim, PROBLEM, GRAPH, Limits())


def test_no_plan_is_an_answer_too() -> None:
    prepared = prepare(Claims(None, None, Status.UNKNOWN), PROBLEM, GRAPH, Limits())
    assert prepared.planned is None and prepared.file.decision is None
