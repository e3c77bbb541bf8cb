"""The timeline of a swap schedule: times and memory by hand, and always the judge's objective."""

from math import ceil

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.swap.judge import judge_swap
from solvers.ir import InvalidInput, InvalidProblem, parse_schedule
from solvers.ir.codec import document_from_raw, document_to_raw
from solvers.ir.report import Report
from solvers.swap.lower import lower
from solvers.timeline import simulate
from tests.solvers.check.partition.test_judge import STORY as PARTITION
from tests.solvers.check.swap.test_judge import STORY
from tests.solvers.check.swap.test_schedule import GOOD
from tests.strategies import swap_plans, swap_problems


def test_the_story_by_hand() -> None:
    """x is out at 19 of op 1's 10-20, so that op 2 finds 14 − 4 bytes at once; its return takes 17 us after op 3."""
    report = simulate(STORY, parse_schedule(GOOD))
    assert [report.makespan_us, report.base_us] == [67, 50]
    assert report.stall_us == {"swap_in": 17, "swap_out": 0}
    levels = [(0, 6), (10, 10), (20, 10), (30, 8), (40, 8)]
    assert list(report.memory) == levels
    assert report.budget_bytes == 10
    assert report.peak_bytes == 10
    assert report.peak_at_us == 10
    lines = [f"{s.action} {s.lane} {s.start_us:.0f}-{s.end_us:.0f}" for s in report.spans if s.action in (1, 3, 6)]
    assert lines == ["1 0.out 10-19", "3 0.compute 20-20", "6 0.in 40-57"]


def test_a_slow_swap_out_stalls_the_op_that_needs_the_room() -> None:
    """With 1 + 10·4 = 41 us to leave, x is out at 51: op 2 waits 31 us, and meanwhile op 1's 10 bytes less 4 remain."""
    slow = replace(STORY, link=replace(STORY.link, out_bytes_per_s=100_000))
    report = simulate(slow, parse_schedule(GOOD))
    assert report.stall_us == {"swap_in": 17, "swap_out": 31}
    assert report.makespan_us == 50 + 31 + 17
    assert list(report.memory) == [(0, 6), (10, 10), (51, 10), (61, 8), (71, 8)]


def test_between_two_releases_the_op_before_still_counts() -> None:
    """Both leave after op 0 (7 bytes), x at 19, y at 26; only then op 1's 8 bytes count, both back in them."""
    both = replace(
        STORY,
        ops=STORY.ops[:2],
        memory_bytes=(7, 8),
        tensors=tuple(replace(tensor, last_forward_use=0, first_backward_use=1) for tensor in STORY.tensors),
    )
    text = """\
lanes 0.compute 0.out 0.in
0 0.compute compute op=0
1 0.out swap_out op=0 data="x" bytes=4 after=0
2 0.out swap_out op=0 data="y" bytes=3
3 0.compute release op=1 data="x" bytes=4 after=1
4 0.compute release op=1 data="y" bytes=3 after=2
5 0.in swap_in op=1 data="x" bytes=4 after=4
6 0.in swap_in op=1 data="y" bytes=3
7 0.compute compute op=1 after=6"""
    report = simulate(both, parse_schedule(text))
    assert list(report.memory) == [(0, 7), (19, 3), (26, 8)]
    assert report.stall_us == {"swap_out": 16, "swap_in": 30}


@settings(max_examples=120)
@given(st.data())
def test_the_timeline_is_the_judges_objective_within_the_budget(data: st.DataObject) -> None:
    problem = data.draw(swap_problems())
    if data.draw(st.booleans()):
        problem = replace(problem, budget_bytes=max(problem.memory_bytes))
    plan = data.draw(swap_plans(problem))
    verdict = judge_swap(problem, plan)
    assume(verdict.clean)
    report = simulate(problem, lower(problem, plan))
    assert ceil(report.makespan_us) == verdict.objective_us
    assert report.makespan_us == verdict.objective_us or problem.link.latency_ns is not None
    assert report.base_us is not None
    assert (report.launch_us is not None) == problem.has_launches
    parts = report.base_us + sum(report.stall_us.values()) + (report.launch_us or 0)
    assert report.makespan_us == pytest.approx(parts, abs=1e-9 if problem.link.latency_ns is not None else 0)
    assert max(level for _, level in report.memory) <= report.peak_bytes <= problem.budget_bytes
    assert dict(report.memory)[report.peak_at_us] <= report.peak_bytes  # less where an op takes no time
    times = [time for time, _ in report.memory]
    assert times == sorted(set(times))
    assert document_from_raw(document_to_raw(report), Report, "the report") == report


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("7 0.compute compute op=4 after=6", "", "computes 4 ops, not each of the problem's 5"),
        ("compute op=4", "recompute op=4", "computes 4 ops"),
        ("release op=2", "evict op=2", "action 3 does evict, which no swap schedule does"),
        ("swap_in op=4", "swap_in op=5", "action 6 belongs to op 5: name one of 0…4"),
        ('release op=2 data="x"', 'release op=2 data="z"', "action 3 names tensor z, which the problem lacks"),
    ],
)
def test_foreign_schedules_are_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(InvalidProblem, match=words.replace("(", r"\(")):
        simulate(STORY, parse_schedule(GOOD.replace(old, new)))


def test_kinds_without_timeline_are_refused() -> None:
    with pytest.raises(InvalidInput, match="schedules of kind partition have no timeline"):
        simulate(PARTITION, parse_schedule(GOOD))
