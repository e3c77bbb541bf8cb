"""The timeline of a swap schedule: times and memory by hand, and always the judge's objective."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.swap import judge_swap
from solvers.ir import InvalidInput, InvalidProblem, parse_schedule
from solvers.ir.codec import document_from_raw, document_to_raw
from solvers.ir.report import Report
from solvers.swap.lower import lower
from solvers.timeline import simulate
from tests.solvers.check.test_partition import STORY as PARTITION
from tests.solvers.check.test_schedule import GOOD
from tests.solvers.check.test_swap import STORY
from tests.strategies import swap_plans, swap_problems


def test_the_story_by_hand() -> None:
    """x is out at 19 of op 1's 10-20, so that op 2 finds 14 − 4 bytes at once; its return takes 17 us after op 3."""
    report = simulate(STORY, parse_schedule(GOOD))
    assert [report.makespan_us, report.base_us] == [67, 50]
    assert report.stall_us == {"swap_in": 17, "swap_out": 0}
    assert list(report.memory) == [(0, 6), (10, 10), (20, 10), (30, 8), (40, 8)]
    assert [report.peak_bytes, report.peak_at_us, report.budget_bytes] == [10, 10, 10]
    ends = {span.action: (span.lane, span.start_us, span.end_us) for span in report.spans}
    assert ends[1] == ("0.out", 10, 19)
    assert ends[3] == ("0.compute", 20, 20)
    assert ends[6] == ("0.in", 40, 57)


def test_a_slow_swap_out_stalls_the_op_that_needs_the_room() -> None:
    """With 1 + 10·4 = 41 us to leave, x is out at 51: op 2 waits 31 us, and meanwhile op 1's 10 bytes less 4 remain."""
    slow = replace(STORY, link=replace(STORY.link, out_bytes_per_s=100_000))
    report = simulate(slow, parse_schedule(GOOD))
    assert report.stall_us == {"swap_in": 17, "swap_out": 31}
    assert report.makespan_us == 50 + 31 + 17
    assert list(report.memory) == [(0, 6), (10, 10), (51, 10), (61, 8), (71, 8)]


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
    assert report.makespan_us == verdict.objective_us
    assert report.base_us is not None
    assert report.makespan_us == report.base_us + sum(report.stall_us.values())
    assert report.peak_bytes == max(level for _, level in report.memory) <= problem.budget_bytes
    assert dict(report.memory)[report.peak_at_us] == report.peak_bytes
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
