"""What launching each operator costs: from the device that tells, or from the two clocks of a step."""

import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch

from runtime.device.native import core
from solvers.ir.graph import Launch

HOST_WAITS = frozenset(
    {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::unique"}
)
"""Operators for whose end the host waits on any device, because it needs their numbers or the size of their result."""

OPERATOR, STREAM, DEVICE = 1, 2, 4


class Measured(NamedTuple):
    """What launching one operator costs, in nanoseconds.

    `device_ns` is the device's own time, the host being far ahead; `host_ns` the host's until all is issued, `end_ns`
    that to the operator's end, both with an idle device, `read_ns` what copies to the host take that it waits for,
    `sent_ns` what those do for which nobody has waited yet.
    `host_waits`: for what, as bits: `OPERATOR`, that is for its own end; `STREAM`, for all before, `DEVICE`, for other
    streams, too, as the program asked between operators.
    """

    device_ns: int
    host_ns: int
    end_ns: int
    host_waits: int
    read_ns: int = 0
    sent_ns: int = 0

    @property
    def tells_host(self) -> bool:
        """Whether the host waits, or something is on its way there: neither may be mixed with what leaves."""
        return self.host_waits > 0 or self.sent_ns > 0


def operator_launches(recorder: core.DetailedRecorder, device: torch.device) -> tuple[Launch, ...] | None:
    """The launch of each recorded operator; None on a CPU, where host and device are one.

    The simulated device tells exactly what each operator would take with the host far ahead, and with the device idle.
    On others this is estimated (`from_clocks`) from the host's clock and the events that the recorder left.
    """
    operators = recorder.operators()
    if device.type == "cpu" or not operators:
        return None
    told = [Measured(*record.launch) for record in operators if record.launch is not None]
    if len(told) < len(operators):
        told = from_clocks(recorder.elapsed_ns(), recorder.host_elapsed_ns(), [record.name for record in operators])
    return launches(told)


def from_clocks(elapsed_ns: Sequence[int], host_ns: Sequence[int], names: Sequence[str]) -> list[Measured]:
    """Launches from the moments at which the device and the host had done with each operator, counted from the start.

    An operator's own time is at most what passed on the device since the end of the one before, or since the host came
    to it, whichever is later: exact where the device lags behind, too long by the launch itself where it does not. What
    it takes of the host where this waits for it is not seen; it counts as much as launching one usually does.
    """
    found = []
    usual = int(statistics.median(after - before for before, after in pairwise([0, *host_ns[: len(names)]])))
    end = host = 0
    for name, device_done, host_done in zip(names, elapsed_ns, host_ns, strict=False):
        waits = name in HOST_WAITS
        own = max(0, device_done - max(end, host))
        launch = min(usual, host_done - host) if waits else host_done - host
        tail = min(own, max(0, device_done - host - launch))
        found.append(Measured(own, launch, launch + (own if waits else tail), waits))
        end, host = device_done, host_done
    return found


def launches(measured: Sequence[Measured]) -> tuple[Launch, ...]:
    """Whole microseconds: cumulative times are rounded, so that rounding never adds up."""
    device = _rounded([one.device_ns for one in measured])
    host = _rounded([one.end_ns - one.device_ns if one.host_waits else one.host_ns for one in measured])
    return tuple(map(_launch, measured, device, host))


def _launch(one: Measured, device_us: int, host_us: int) -> Launch:
    tail_ns = max(0, one.end_ns - one.host_ns)
    whole = one.host_waits or tail_ns == one.device_ns
    tail_us = None if whole else min(_whole(tail_ns), device_us)
    return Launch(device_us=device_us, host_us=host_us, tail_us=tail_us, host_waits=one.host_waits > 0)


def _rounded(durations_ns: Sequence[int]) -> list[int]:
    ends = [0, *(_whole(end) for end in accumulate(durations_ns))]
    return [after - before for before, after in pairwise(ends)]


def _whole(duration_ns: int) -> int:
    return (duration_ns + 500) // 1000
