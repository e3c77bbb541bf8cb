"""The same work gives the same answer, however busy the machine is."""

from experiments.graphs import pairs
from experiments.graphs.names import by_name
from solvers.ir.solution import Limits
from solvers.planner import build_solver


def test_a_busy_machine_gives_the_same_plan() -> None:
    problem = by_name("layered-20-s0@.4")
    calm = build_solver("opt", {}).solve(problem, Limits(work=0.1))
    with pairs.burning(2):
        busy = build_solver("opt", {}).solve(problem, Limits(work=0.1))
    assert (calm.plan, calm.bound, calm.certificate) == (busy.plan, busy.bound, busy.certificate)


def test_there_are_twenty_pairs_of_four_kinds_and_more() -> None:
    assert len(pairs.PAIRS) == 20
    assert len({solver for solver, _, _ in pairs.PAIRS}) == 8
