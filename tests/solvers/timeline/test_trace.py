"""The Chrome trace holds its schema: slices on named rows, a memory counter, arrows that start and finish."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.ir import Report, parse_schedule
from solvers.swap.lower import lower
from solvers.timeline import chrome_trace, simulate
from tests.documents import reports
from tests.solvers.check.swap.test_judge import STORY
from tests.solvers.check.swap.test_schedule import GOOD
from tests.strategies import swap_plans, swap_problems

KEYS = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "name", "cat", "ts", "dur", "pid", "tid", "args"},
    "C": {"ph", "name", "ts", "pid", "tid", "args"},
    "s": {"ph", "name", "cat", "id", "ts", "pid", "tid"},
    "f": {"ph", "name", "cat", "id", "ts", "pid", "tid", "bp"},
}
"""The Trace Event Format's phases that we write, and exactly these keys of theirs."""


def require_schema(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a trace that holds the format; times are numbers ≥ 0, arrows come in pairs on named rows."""
    trace = json.loads(json.dumps(trace, allow_nan=False))
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    events: list[dict[str, Any]] = trace["traceEvents"]
    rows = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    for event in events:
        assert set(event) == KEYS[event["ph"]]
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 1) > 0
        if event["ph"] in "Xsf":
            assert (event["pid"], event["tid"]) in rows
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
    starts = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
    ends = {e["id"]: e["ts"] for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(starts[name] <= ends[name] for name in starts)
    return events


def test_the_story_as_a_trace() -> None:
    schedule = parse_schedule(GOOD)
    trace = chrome_trace(simulate(STORY, schedule), schedule)
    events = require_schema(trace)
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows == {0: "0.compute", 1: "0.out", 2: "0.in"}
    slices = {e["name"]: (rows[e["tid"]], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert slices["swap_in op 4 tensor x"] == ("0.in", 40, 17)
    assert len(slices) == 7  # five ops and two transfers; the release takes no time
    assert len([e for e in events if e["ph"] == "s"]) == 4
    memory = [(e["ts"], e["args"]["bytes"]) for e in events if e["name"] == "memory"]
    assert memory == [(0, 6), (10, 10), (20, 10), (30, 8), (40, 8)]
    assert trace["otherData"]["makespan_us"] == 67


@given(st.data())
def test_simulated_reports_make_valid_traces(data: st.DataObject) -> None:
    problem = data.draw(swap_problems())
    problem = replace(problem, budget_bytes=max(problem.memory_bytes))
    schedule = lower(problem, data.draw(swap_plans(problem)))
    require_schema(chrome_trace(simulate(problem, schedule), schedule))


@given(reports)
def test_any_report_makes_a_trace(report: Report) -> None:
    spans = tuple(
        replace(s, start_us=min(s.start_us, s.end_us), end_us=max(s.start_us, s.end_us)) for s in report.spans
    )
    require_schema(chrome_trace(replace(report, spans=spans)))
