"""How fast data moves between an accelerator and the host, one way and both."""

from functools import partial
from typing import NamedTuple

import torch

from runtime.profile.clocks import EventClock
from solvers.ir.hardware import HOST, Link

SMALL_BYTES = 1 << 20
LARGE_BYTES = 16 << 20
REPEATS = 4
SAME = 0.02
"""Relative difference below which two rates count as equal."""
SHARED = 1.5
"""Factor by which both directions together take longer than one alone, at least, where they share the link."""


class Way(NamedTuple):
    """One direction of a link."""

    bytes_per_s: int
    latency_us: float


def measure_links(device: torch.device, name: str) -> tuple[Link, ...]:
    """The links between host and device, from pinned memory: one of both directions if they are alike, else two."""
    clock = EventClock(device)
    inward, outward = measure_way(device, clock, inward=True), measure_way(device, clock, inward=False)
    if not _alike(inward, outward):
        return (
            Link(a=HOST, b=name, bytes_per_s=inward.bytes_per_s, latency_us=inward.latency_us, duplex="simplex"),
            Link(a=name, b=HOST, bytes_per_s=outward.bytes_per_s, latency_us=outward.latency_us, duplex="simplex"),
        )
    shared = _both_s(device) > SHARED * LARGE_BYTES / inward.bytes_per_s
    return (
        Link(
            a=name,
            b=HOST,
            bytes_per_s=round((inward.bytes_per_s + outward.bytes_per_s) / 2),
            latency_us=(inward.latency_us + outward.latency_us) / 2,
            duplex="half" if shared else "full",
        ),
    )


def measure_way(device: torch.device, clock: EventClock, *, inward: bool) -> Way:
    """Rate and latency of one direction: the line through the times of a small and a large transfer."""
    times_s = []
    for size in (SMALL_BYTES, LARGE_BYTES):
        source, target = _buffers(device, size, inward)
        times_s.append(clock.per_call_s(partial(target.copy_, source, non_blocking=True), REPEATS))
    rate = (LARGE_BYTES - SMALL_BYTES) / (times_s[1] - times_s[0])
    latency_us = max(times_s[0] - SMALL_BYTES / rate, 0.0) * 1e6
    return Way(round(rate), round(latency_us, 3))


def _buffers(device: torch.device, size: int, inward: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Source and target of a transfer."""
    host = torch.zeros(size, dtype=torch.uint8).pin_memory()
    there = torch.zeros(size, dtype=torch.uint8, device=device)
    return (host, there) if inward else (there, host)


def _alike(one: Way, other: Way) -> bool:
    return abs(one.bytes_per_s - other.bytes_per_s) <= SAME * max(one.bytes_per_s, other.bytes_per_s)


def _both_s(device: torch.device) -> float:
    """Seconds of a large transfer each way at the same time, each on its own stream."""
    streams = [torch.Stream(device) for _ in range(2)]
    buffers = [_buffers(device, LARGE_BYTES, inward) for inward in (True, False)]
    ends = [torch.Event(device, enable_timing=True) for _ in streams]
    torch.accelerator.synchronize(device)
    begin = torch.Event(device, enable_timing=True)
    begin.record()
    for stream, end, (source, target) in zip(streams, ends, buffers, strict=True):
        stream.wait_event(begin)
        with stream:
            target.copy_(source, non_blocking=True)
            end.record(stream)
    torch.accelerator.synchronize(device)
    return max(begin.elapsed_time(end) for end in ends) / 1000
