"""The lane core: FIFO lanes, waits across them, and 1F1B as one of the things it can carry."""

from hypothesis import given
from hypothesis import strategies as st

from solvers.ir import Action, Schedule, parse_schedule
from solvers.timeline import makespan_us, run_lanes
from tests.documents import schedules

PIPELINE = """\
lanes 0.compute 1.compute
0 0.compute compute op=0 mb=0
1 0.compute compute op=0 mb=1
2 1.compute compute op=1 mb=0 after=0
3 1.compute compute op=2 mb=0
4 1.compute compute op=1 mb=1 after=1
5 1.compute compute op=2 mb=1
6 0.compute compute op=3 mb=0 after=3
7 0.compute compute op=3 mb=1 after=5"""
"""Two stages, two microbatches: ops 0 and 1 are the forward passes, 2 and 3 the backward ones."""


def test_lanes_are_fifo_and_waits_cross_them() -> None:
    """F takes 1 us, B 2 us: stage 1 runs F0 1-2, B0 2-4, F1 4-5, B1 5-7; stage 0 ends with B1 at 7-9 = (2 + 1) · 3."""
    spans = run_lanes(parse_schedule(PIPELINE), lambda action: 1 if action.op in (0, 1) else 2)
    assert [(spans[n].start_us, spans[n].end_us) for n in range(8)] == [
        (0, 1), (1, 2), (1, 2), (2, 4), (4, 5), (5, 7), (4, 6), (7, 9),
    ]  # fmt: skip
    assert makespan_us(spans) == 9
    assert spans[7].label == "compute op 3 microbatch 1"


def test_nothing_takes_no_time() -> None:
    assert makespan_us(run_lanes(Schedule(lanes=("0.in",), actions=()), lambda action: 1)) == 0


@given(schedules(), st.integers(0, 3))
def test_every_action_starts_as_early_as_it_may_and_no_earlier(schedule: Schedule, factor: int) -> None:
    def duration(action: Action) -> int:
        return factor * (action.id % 5)

    spans = run_lanes(schedule, duration)
    assert list(spans) == [action.id for action in schedule.actions]
    last: dict[str, int] = {}
    for action in schedule.actions:
        ends = [spans[before].end_us for before in action.after]
        ends += [spans[last[action.lane]].end_us] if action.lane in last else []
        assert spans[action.id].start_us == max(ends, default=0)
        assert spans[action.id].end_us == spans[action.id].start_us + duration(action)
        last[action.lane] = action.id
