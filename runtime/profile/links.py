"""How fast data moves between an accelerator and the host, one way and both."""

import statistics
from functools import partial
from typing import NamedTuple

import torch

from runtime.profile.clocks import TRIALS, EventClock
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


class Measured(NamedTuple):
    """An accelerator's links with the host, and how many times as long copies take while others go the other way."""

    links: tuple[Link, ...]
    slowdown: float


def measure_links(device: torch.device, name: str) -> tuple[Link, ...]:
    """The links between host and device, from pinned memory: one of both directions if they are alike, else two."""
    return measure_both_ways(device, name).links


def measure_both_ways(device: torch.device, name: str) -> Measured:
    """The links as `measure_links`, told to share their rate where copies both ways at once slow each other down."""
    clock = EventClock(device)
    inward, outward = measure_way(device, clock, inward=True), measure_way(device, clock, inward=False)
    slower_s = max(LARGE_BYTES / way.bytes_per_s + way.latency_us / 1e6 for way in (inward, outward))
    slowdown = max(_both_s(device) / slower_s, 1.0)
    shared = slowdown > SHARED
    if not _alike(inward, outward):
        bundle = f"{name} and {HOST}" if shared else None
        return Measured((_one_way(HOST, name, inward, bundle), _one_way(name, HOST, outward, bundle)), slowdown)
    link = Link(
        a=name,
        b=HOST,
        bytes_per_s=round((inward.bytes_per_s + outward.bytes_per_s) / 2),
        latency_us=(inward.latency_us + outward.latency_us) / 2,
        duplex="half" if shared else "full",
    )
    return Measured((link,), slowdown)


def _one_way(source: str, target: str, way: Way, bundle: str | None) -> Link:
    rate, latency = way
    return Link(a=source, b=target, bytes_per_s=rate, latency_us=latency, duplex="simplex", shares=bundle)


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
    """Seconds of a large transfer while others go the other way: the median of some rounds.

    Each direction has a stream and several transfers in a row, as the first ones of two streams do not quite meet.
    """
    return statistics.median(_round_s(device) for _ in range(TRIALS)) / REPEATS


def _round_s(device: torch.device) -> float:
    """Seconds of `REPEATS` large transfers each way, each way on its own stream."""
    streams = [torch.Stream(device) for _ in range(2)]
    buffers = [_buffers(device, LARGE_BYTES, inward) for inward in (True, False)]
    ends = [torch.Event(device, enable_timing=True) for _ in streams]
    torch.accelerator.synchronize(device)
    begin = torch.Event(device, enable_timing=True)
    begin.record()
    for stream in streams:
        stream.wait_event(begin)
    for _ in range(REPEATS):
        for stream, (source, target) in zip(streams, buffers, strict=True):
            with stream:
                target.copy_(source, non_blocking=True)
    for stream, end in zip(streams, ends, strict=True):
        end.record(stream)
    torch.accelerator.synchronize(device)
    return max(begin.elapsed_time(end) for end in ends) / 1000
