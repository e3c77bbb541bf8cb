"""A pipeline as a report and a schedule: the trace holds its form, and the lane core replays the schedule."""

from typing import Any

import pytest

from solvers.ir import InvalidInput
from solvers.timeline import chrome_trace, run_lanes
from solvers.timeline.pipeline.memory import StageBytes, stage_memory
from solvers.timeline.pipeline.picture import pipeline_report, pipeline_schedule
from solvers.timeline.pipeline.times import pipeline
from tests.solvers.timeline.pipeline.pipelines import random_given
from tests.solvers.timeline.test_trace import require_schema

TIMES = pipeline([1, 1], [2, 2], recompute_us=[1, 0], microbatches=2)
HELD = [StageBytes(static_bytes=100, stored_bytes=10), StageBytes(static_bytes=105, stored_bytes=10)]


def test_the_report_of_two_stages() -> None:
    report = pipeline_report(TIMES, stage_memory(TIMES, HELD), name="two stages", budget_bytes=200)
    assert [report.makespan_us, report.base_us, report.budget_bytes] == [10, 9, 200]
    assert report.stall_us == {"bubble of stage 0": 2, "bubble of stage 1": 4}
    assert [report.peak_bytes, report.peak_at_us] == [120, 1]
    assert list(report.memory) == [(0, 110), (1, 120), (7, 110), (10, 100)]
    assert report.source.endswith("1f1b, 2 microbatches; memory of stage 0")
    drawn = [(span.lane, span.label, span.start_us, span.end_us) for span in report.spans if span.lane == "0.compute"]
    assert drawn == [
        ("0.compute", "forward microbatch 0", 0, 1),
        ("0.compute", "forward microbatch 1", 1, 2),
        ("0.compute", "recompute microbatch 0", 4, 5),
        ("0.compute", "backward microbatch 0", 5, 7),
        ("0.compute", "recompute microbatch 1", 7, 8),
        ("0.compute", "backward microbatch 1", 8, 10),
    ]


def test_the_trace_has_a_process_for_each_stage_and_an_arrow_for_each_message() -> None:
    events = require_schema(chrome_trace(pipeline_report(TIMES), pipeline_schedule(TIMES)))
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 1}
    assert len([event for event in events if event["ph"] == "s"]) == 4


def test_the_lane_core_replays_the_schedule() -> None:
    """Schedules carry no messages, so these pipelines have no hops; durations are those of the report."""
    for seed in range(120):
        arguments: dict[str, Any] = random_given(seed).arguments() | {"p2p_us": 0}
        times = pipeline(arguments.pop("forward_us"), arguments.pop("backward_us"), **arguments)
        report, schedule = pipeline_report(times), pipeline_schedule(times)
        length = {span.action: int(span.end_us - span.start_us) for span in report.spans}
        replayed = run_lanes(schedule, lambda action, length=length: length[action.id])  # type: ignore[misc]
        for span in report.spans:
            assert (replayed[span.action].start_us, replayed[span.action].end_us) == (span.start_us, span.end_us), seed


def test_batches_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the times are of a batch"):
        pipeline_schedule(pipeline([[1]], [[2]], microbatches=1))
