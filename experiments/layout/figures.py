"""What a training under a layout came to: equal bits, times on the lanes, the executed step as a report."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from experiments.bits import same_bits
from experiments.layout.training import Trained
from runtime.device import TraceRecord
from solvers.ir.report import Report, Span

LANES = {"to device": "0.in", "to host": "0.out", "host": "0.host", "comm": "0.comm"}
"""The lane of a record, by its kind; all others compute."""
NS = 1e3
"""Nanoseconds a microsecond."""


def equalities(done: Trained, plain: Trained) -> dict[str, bool]:
    """Whether losses, parameters, gradients and buffers are plain training's, bit for bit."""
    return {
        "equal_losses": done.losses == plain.losses,
        "equal_parameters": _equal(done.parameters, plain.parameters),
        "equal_gradients": _equal(done.gradients, plain.gradients),
        "equal_buffers": _equal(done.buffers, plain.buffers),
    }


def _equal(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(same_bits(one, theirs[name]) for name, one in ours.items())


def executed_report(name: str, done: Trained, budget_bytes: int | None) -> Report:
    """The last step as a report on the lanes of schedules, from the beginning of its first record."""
    since = min((record.start_ns for record in done.trace), default=0)
    spans = tuple(
        Span(
            action=number,
            lane=LANES.get(record.kind, "0.compute"),
            label=record.name,
            start_us=(record.start_ns - since) / NS,
            end_us=(record.end_ns - since) / NS,
        )
        for number, record in enumerate(done.trace)
    )
    return Report(
        name=name,
        how="executed",
        source="device sim:0",
        makespan_us=max((span.end_us for span in spans), default=0),
        budget_bytes=budget_bytes,
        peak_bytes=done.peak_bytes,
        spans=spans,
    )


def moved_bytes(trace: Iterable[TraceRecord]) -> int:
    """What the step moved over the link with the host, both ways."""
    return sum(record.bytes for record in trace if record.kind in ("to device", "to host"))


def hidden_us(trace: Iterable[TraceRecord]) -> float:
    """How long kernels ran while the link moved something."""
    records = list(trace)
    moving = _union((one.start_ns, one.end_ns) for one in records if one.kind in ("to device", "to host"))
    running = _union((one.start_ns, one.end_ns) for one in records if one.kind not in LANES)
    both, place = 0, 0
    for start, end in running:
        while place < len(moving) and moving[place][1] <= start:
            place += 1
        for began, ended in moving[place:]:
            if began >= end:
                break
            both += min(end, ended) - max(start, began)
    return both / NS


def _union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
