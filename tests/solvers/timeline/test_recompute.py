"""The timeline of recompute-graph schedules: what waits, what stands in memory when, and what is refused."""

import pytest

from solvers.ir import RecomputeGraphProblem
from solvers.ir.errors import InvalidProblem
from solvers.ir.schedule import Schedule, parse_action, parse_schedule
from solvers.timeline import chrome_trace, simulate
from tests.solvers.check.recompute_graph.test_judge import COMM, op

STORY = parse_schedule(
    """lanes 0.compute 0.comm
0 0.compute compute op=0 data=0 bytes=4
1 0.compute compute op=1 data=1 bytes=3
2 0.comm collective_start op=2 data=2 bytes=1 after=1
3 0.compute collective_wait op=2 after=2
4 0.compute release op=1 data=1 bytes=3
5 0.compute compute op=3 data=3 bytes=2"""
)


def test_communication_that_hides_nothing_is_exposed() -> None:
    """4 + 3 us, then 4 us of waiting, then 6 us; static 5 bytes, + 4, + 3, + 1 (the buffer, from 7 us on), - 3, + 2."""
    report = simulate(COMM, STORY)
    assert (report.makespan_us, report.base_us, report.stall_us) == (17, 17, {"communication": 4})
    assert list(report.memory) == [(0, 5), (0, 9), (4, 12), (7, 13), (11, 10), (11, 12)]
    assert (report.peak_bytes, report.peak_at_us) == (13, 7)


def test_a_recomputed_communication_runs_on_its_lane_and_is_waited_for() -> None:
    """Op 0 communicates for 2 us, op 1 computes for 1 us; op 0 again from 3 to 5 us, then op 2."""
    problem = RecomputeGraphProblem(
        name="c", budget_bytes=3, static_bytes=0, ops=(op(2, 2, comm=True), op(1, 1), op(1, 1, 0))
    )
    schedule = parse_schedule(
        """lanes 0.compute 0.comm
0 0.comm collective_start op=0 data=0 bytes=2
1 0.compute collective_wait op=0 after=0
2 0.compute release op=0 data=0 bytes=2
3 0.compute compute op=1 data=1 bytes=1
4 0.compute release op=1 data=1 bytes=1
5 0.comm recompute op=0 data=0 bytes=2 after=4
6 0.compute collective_wait op=0 after=5
7 0.compute compute op=2 data=2 bytes=1"""
    )
    report = simulate(problem, schedule)
    assert (report.makespan_us, report.peak_bytes, report.stall_us) == (6, 3, {"communication": 4})


def test_the_trace_shows_both_lanes() -> None:
    trace = chrome_trace(simulate(COMM, STORY), STORY)
    drawn = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert {"collective_start op 2 tensor 2", "compute op 3 tensor 3"} <= drawn


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("5 0.compute swap_in op=3 data=3 bytes=2", "action 5 does swap_in"),
        ("5 0.compute compute op=4 data=4", "action 5 belongs to op 4: name one of 0…3"),
        ("5 0.compute recompute op=1 data=1 bytes=3", "the schedule computes 3 of the problem's 4 ops"),
    ],
)
def test_what_is_no_schedule_of_this_problem_is_refused(line: str, words: str) -> None:
    faulty = Schedule(lanes=STORY.lanes, actions=(*STORY.actions[:-1], parse_action(line)))
    with pytest.raises(InvalidProblem, match=words):
        simulate(COMM, faulty)
