"""The same work gives the same answer, however busy the machine is."""

from experiments.graphs import pairs
from solvers.ir.solution import Limits
from solvers.planner import build_solver


def test_a_busy_machine_gives_the_same_plan() -> None:
    problem = pairs.by_name("layered-30-s0@.4")
    calm = build_solver("opt", {}).solve(problem, Limits(work=0.3))
    with pairs.burning(2):
        busy = build_solver("opt", {}).solve(problem, Limits(work=0.3))
    assert (calm.plan, calm.bound, calm.certificate) == (busy.plan, busy.bound, busy.certificate)


def test_kept_pairs_are_the_twenty_and_the_same() -> None:
    assert len(pairs.PAIRS) == 20
