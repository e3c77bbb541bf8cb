"""What the host spends on the smallest kernel and on events: what a trace of many of them adds to a step."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from runtime.device import clock
from runtime.profile.clocks import CallClock, settled_s

LAUNCHES = 200
EVENTS = 500


class EventCosts(NamedTuple):
    """Host's time in µs of one event: recording one again, the same with timing, making one and recording it."""

    record_us: float
    timed_us: float
    new_us: float


def launch_us(device: torch.device, timer: CallClock) -> float:
    """The smallest kernel: what it takes is what launching takes, in µs."""
    value = torch.zeros(1, device=device)
    return settled_s(timer, lambda: value.add_(1), LAUNCHES) * 1e6


def event_costs(device: torch.device) -> EventCosts:
    """What events cost on an accelerator's current stream."""
    plain, timed = torch.Event(device), torch.Event(device, enable_timing=True)
    return EventCosts(
        record_us=_each_us(device, plain.record),
        timed_us=_each_us(device, timed.record),
        new_us=_each_us(device, lambda: torch.Event(device).record()),
    )


def _each_us(device: torch.device, call: Callable[[], object]) -> float:
    """µs of one call, from many in a row until the device has done them all."""
    now_ns = clock(device)
    call()
    begin = now_ns()
    for _ in range(EVENTS):
        call()
    return (now_ns() - begin) / EVENTS / 1e3
