"""A report as Chrome trace JSON, which Perfetto and chrome://tracing draw."""

from typing import Any

from solvers.ir.report import Report
from solvers.ir.schedule import Schedule

LANE_ORDER = ("host", "compute", "comm", "out", "in")
"""From top to bottom."""
Event = dict[str, Any]


def chrome_trace(report: Report, schedule: Schedule | None = None) -> dict[str, Any]:
    """The trace document: ranks as processes, lanes as threads, memory as a counter; times in microseconds.

    With the schedule that the report is of, every wait in `after` is drawn as an arrow.
    """
    lanes = sorted({span.lane for span in report.spans}, key=_lane_key)
    threads = {lane: number for number, lane in enumerate(lanes)}
    events = [*_names(report, lanes, threads), *_spans(report, threads), *_memory(report)]
    if schedule is not None:
        events += _arrows(report, schedule, threads)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": _about(report)}


def _about(report: Report) -> dict[str, Any]:
    return {
        "name": report.name,
        "how": report.how,
        "source": report.source,
        "makespan_us": report.makespan_us,
        "peak_bytes": report.peak_bytes,
        "budget_bytes": report.budget_bytes,
    }


def _lane_key(lane: str) -> tuple[int, int]:
    rank, name = lane.split(".")
    return int(rank), LANE_ORDER.index(name)


def _rank(lane: str) -> int:
    return int(lane.split(".")[0])


def _names(report: Report, lanes: list[str], threads: dict[str, int]) -> list[Event]:
    """Metadata events: what the viewer writes beside each row, and the order of rows."""
    events: list[Event] = []
    for rank in sorted({_rank(lane) for lane in lanes}):
        named = {"name": f"{report.name} ({report.how}), rank {rank}"}
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": named})
    for lane in lanes:
        place = {"ph": "M", "pid": _rank(lane), "tid": threads[lane]}
        events.append({**place, "name": "thread_name", "args": {"name": lane}})
        events.append({**place, "name": "thread_sort_index", "args": {"sort_index": threads[lane]}})
    return events


def _spans(report: Report, threads: dict[str, int]) -> list[Event]:
    """Complete events; what takes no time (a release) is left out of the drawing."""
    return [
        {
            "ph": "X",
            "name": span.label,
            "cat": span.label.split(" ")[0],
            "ts": span.start_us,
            "dur": span.end_us - span.start_us,
            "pid": _rank(span.lane),
            "tid": threads[span.lane],
            "args": {"action": span.action},
        }
        for span in report.spans
        if span.end_us > span.start_us
    ]


def _memory(report: Report) -> list[Event]:
    """A counter of bytes in use; the budget is drawn as a counter of its own beside it."""
    events = [
        {"ph": "C", "name": "memory", "ts": time, "pid": 0, "tid": 0, "args": {"bytes": level}}
        for time, level in report.memory
    ]
    if report.budget_bytes is not None:
        budget = {"ph": "C", "name": "budget", "pid": 0, "tid": 0, "args": {"bytes": report.budget_bytes}}
        events += [{**budget, "ts": 0}, {**budget, "ts": report.makespan_us}]
    return events


def _arrows(report: Report, schedule: Schedule, threads: dict[str, int]) -> list[Event]:
    """A start and a finish for every wait; the viewer binds each to the slice that encloses it."""
    spans = {span.action: span for span in report.spans}
    events: list[Event] = []
    number = 0
    for action in schedule.actions:
        for before in action.after:
            source, target = spans[before], spans[action.id]
            number += 1
            arrow = {"name": "after", "cat": "after", "id": number}
            start = {"ts": source.end_us, "pid": _rank(source.lane), "tid": threads[source.lane]}
            finish = {"ts": target.start_us, "pid": _rank(target.lane), "tid": threads[target.lane]}
            events += [{**arrow, "ph": "s", **start}, {**arrow, "ph": "f", "bp": "e", **finish}]
    return events
