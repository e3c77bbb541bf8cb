"""What the host's own code does beside launching: tasks that take time, accesses to page-locked memory."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from runtime.device.arguments import require_integer
from runtime.device.native import load
from solvers.ir.errors import InvalidInput

END_OF_DURATIONS_NS = 10**15
"""Eleven days: sums of such durations stay far below 2**63."""


class Task(NamedTuple):
    """What `DeviceView.host_task` is given."""

    duration_ns: int
    after: torch.Event | None
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    work: Callable[[], object] | None
    name: str


def require_host(tensors: Iterable[Tensor]) -> None:
    """Raise `InvalidInput` unless all of them lie in the host's memory."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise InvalidInput(
                f"a tensor of device {tensor.device} is nothing that the host reads or writes by itself: "
                "name the page-locked tensor that it is copied to or from"
            )


def start_task(native: ModuleType, device: torch.device, task: Task) -> torch.Event:
    """The task's end, as an event of the worker's."""
    require_integer("duration_ns", task.duration_ns, 0, END_OF_DURATIONS_NS, "give the task's nanoseconds")
    worker = torch.Stream(
        stream_id=native.host_worker(device.index),
        device_index=device.index,
        device_type=torch.accelerator.current_stream(device).device_type,
    )
    if task.after is not None:
        worker.wait_event(task.after)
    native.host_task(device.index, task.duration_ns, list(task.reads), list(task.writes), task.name)
    if task.work is not None:
        before = native.exchange_working(device.index)
        try:
            task.work()
        finally:
            native.exchange_working(before)
        native.raise_races(device.index)
    end = torch.Event(device=device, enable_timing=True)
    end.record(worker)
    return end


def host_access(tensor: Tensor, write: bool, name: str = "host access") -> None:
    """For programs that also run on real devices: `DeviceView.host_access` of the current device where that is sim.

    Elsewhere nothing happens: a real device has no race check.
    """
    require_host([tensor])
    current = torch.accelerator.current_accelerator()
    if current is None or current.type != "sim":
        return
    reads, writes = ([], [tensor]) if write else ([tensor], [])
    load("runtime._sim").host_access(torch.accelerator.current_device_index(), reads, writes, name)
