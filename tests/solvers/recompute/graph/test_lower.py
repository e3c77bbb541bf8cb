"""Lowered plans: on lanes they take the plan's time and memory; the schedule's judge finds what is missing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check import check_schedule
from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.ir import Limits, RecomputeGraphPlan, RecomputeGraphProblem
from solvers.ir.errors import InvalidInput
from solvers.recompute.graph.answers import windows_of
from solvers.recompute.graph.evict import evictions
from solvers.recompute.graph.instances import random_layered
from solvers.recompute.graph.lower import lower
from solvers.recompute.graph.milp import OptMilp
from solvers.recompute.graph.polish import polish
from solvers.recompute.graph.replay import instance, plan_from_recomputations, replay
from solvers.timeline import simulate
from tests.solvers.check.recompute_graph.test_judge import COMM, plan
from tests.solvers.recompute.graph.brute_force import random_problem
from tests.solvers.recompute.graph.test_replay import both
from tests.strategies import recompute_graph_plans, recompute_graph_problems

HIDDEN = plan(again=[(2, 0)], keep=[(1, 0), (2, 1), (3, 0), (3, 2)])


def test_a_recomputation_behind_a_communication_line_by_line() -> None:
    """Op 2 communicates for 4 us, op 0 (4 us) is computed again meanwhile; its first output went after op 1."""
    schedule = lower(COMM, HIDDEN)
    assert schedule.text().splitlines() == [
        "lanes 0.compute 0.comm",
        "0 0.compute compute op=0 data=0 bytes=4",
        "1 0.compute compute op=1 data=1 bytes=3",
        "2 0.compute release op=0 data=0 bytes=4",
        "3 0.comm collective_start op=2 data=2 bytes=1 after=2",
        "4 0.compute recompute op=0 data=0 bytes=4",
        "5 0.compute collective_wait op=2 after=3",
        "6 0.compute release op=1 data=1 bytes=3",
        "7 0.compute compute op=3 data=3 bytes=2",
        "8 0.compute release op=0 data=0 bytes=4",
        "9 0.compute release op=2 data=2 bytes=1",
        "10 0.compute release op=3 data=3 bytes=2",
    ]
    report = simulate(COMM, schedule)
    assert (report.makespan_us, report.base_us, report.peak_bytes) == (17, 17, 13)
    assert report.stall_us == {"communication": 0}
    assert [span.start_us for span in report.spans if span.label.startswith("recompute op 0")] == [7]


def solved(seeds: range) -> list[tuple[RecomputeGraphProblem, RecomputeGraphPlan]]:
    pairs = []
    for seed in seeds:
        problem = random_problem(seed)
        found = OptMilp().solve(problem, Limits())
        pairs += [(problem, found.plan)] if found.plan is not None else []
    return pairs


def test_time_and_peak_on_lanes_are_the_plans() -> None:
    for problem, decision in solved(range(60)):
        schedule = lower(problem, decision)
        report, found = simulate(problem, schedule), replay(problem, *both(problem, decision))
        assert (report.makespan_us, report.peak_bytes) == (found.objective_us, found.peak_bytes)
        assert check_schedule(problem, schedule).violations == ()
        assert check_schedule(replace(problem, budget_bytes=found.peak_bytes), schedule).clean
        assert not check_schedule(replace(problem, budget_bytes=found.peak_bytes - 1), schedule).clean


@settings(max_examples=300)
@given(recompute_graph_problems(max_ops=6).flatmap(lambda p: st.tuples(st.just(p), recompute_graph_plans(p))))
def test_any_valid_plan_is_lowered_exactly_and_an_invalid_one_refused(
    pair: tuple[RecomputeGraphProblem, RecomputeGraphPlan],
) -> None:
    """Plans that keep what nobody reads, too."""
    problem, decision = pair
    if not judge_recompute_graph(problem, decision).clean:
        with pytest.raises(InvalidInput, match="the plan is invalid"):
            lower(problem, decision)
        return
    schedule = lower(problem, decision)
    report, found = simulate(problem, schedule), replay(problem, *both(problem, decision))
    assert (report.makespan_us, report.peak_bytes) == (found.objective_us, found.peak_bytes)
    assert check_schedule(problem, schedule).violations == ()


def test_seven_hundred_ops_are_lowered_judged_and_simulated_in_seconds() -> None:
    problem = random_layered(700, width=6, comm=0.15, position=0.6)
    facts = instance(problem)
    recomputed = polish(facts, next(evictions(facts, lambda: False)), windows_of(facts), lambda: False)
    schedule = lower(problem, plan_from_recomputations(problem, recomputed))
    report, found = simulate(problem, schedule), replay(problem, recomputed)
    assert check_schedule(problem, schedule).violations == ()
    assert (report.makespan_us, report.peak_bytes) == (found.objective_us, found.peak_bytes)
    assert found.objective_us > facts.base
