"""How much of the copies between device and host runs beside kernels, read from a profiler's Chrome trace."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.device import SimDevice, TraceRecord

Span = tuple[float, float]
"""Begin and end, in µs."""
KERNEL, COPY = "kernel", "gpu_memcpy"
"""The categories that PyTorch's profiler gives to work on a CUDA device."""


def traced(step: Callable[[], object]) -> list[Mapping[str, Any]]:
    """The trace events of one step on CUDA."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[Mapping[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def traced_on_sim(step: Callable[[], object], sim: "SimDevice") -> list[Mapping[str, Any]]:
    """The same of one step on the simulated device, in virtual time."""
    sim.synchronize()
    before = len(sim.trace())
    sim.set_tracing(True)
    try:
        step()
        sim.synchronize()
        records = sim.trace()[before:]
    finally:
        sim.set_tracing(False)
    return [_event(record) for record in records]


def _event(record: "TraceRecord") -> Mapping[str, Any]:
    way = {"to host": "DtoH", "to device": "HtoD"}.get(record.kind)
    span = {"ph": "X", "ts": record.start_ns / 1e3, "dur": (record.end_ns - record.start_ns) / 1e3}
    return {**span, "cat": KERNEL if way is None else COPY, "name": record.op if way is None else f"Memcpy {way}"}


def hidden_share(events: Iterable[Mapping[str, Any]]) -> float | None:
    """The share of the time of copies to and from the host during which some kernel runs; None without such copies."""
    complete = [event for event in events if event.get("ph") == "X"]
    copies = _union(_span(event) for event in complete if event.get("cat") == COPY and _crosses(event))
    kernels = _union(_span(event) for event in complete if event.get("cat") == KERNEL)
    total = sum(end - begin for begin, end in copies)
    return None if total == 0 else _common(copies, kernels) / total


def _crosses(event: Mapping[str, Any]) -> bool:
    """Whether a copy leaves or enters the device ("Memcpy DtoH (Device -> Pinned)")."""
    return any(way in str(event.get("name", "")) for way in ("DtoH", "HtoD"))


def _span(event: Mapping[str, Any]) -> Span:
    begin = float(event["ts"])
    return begin, begin + float(event["dur"])


def _union(spans: Iterable[Span]) -> list[Span]:
    """The same times as spans that do not touch, in order."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def _common(left: list[Span], right: list[Span]) -> float:
    """The time in both, each a union."""
    total, at = 0.0, 0
    for begin, end in left:
        while at < len(right) and right[at][1] <= begin:
            at += 1
        ahead = at
        while ahead < len(right) and right[ahead][0] < end:
            total += min(end, right[ahead][1]) - max(begin, right[ahead][0])
            ahead += 1
    return total
