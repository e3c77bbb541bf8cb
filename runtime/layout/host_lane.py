"""The host's worker: what it does beside the launching thread, in virtual time on sim, in a thread elsewhere."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch

from runtime.device import DeviceView
from runtime.device.native import load
from runtime.layout.log import Log


class Done(Protocol):
    """Work of the worker."""

    def wait(self) -> None:
        """Let the host wait for it; raises what the work raised."""

    def tell(self, log: Log, what: str, number: int) -> None:
        """Tell a log when it ran, where that is on the device's clock."""


class HostLane(Protocol):
    """Takes the host's work, one after the other."""

    def submit(self, work: Callable[[], object], duration_ns: int, after: torch.Event | None, name: str) -> Done:
        """Do this when the event is over and all before it is done."""

    def close(self) -> None:
        """Nothing more will come."""


def host_lane(device: torch.device) -> HostLane:
    """The worker beside a device."""
    return _VirtualLane(device) if device.type == "sim" else _Thread()


class _VirtualDone:
    def __init__(self, start: torch.Event, end: torch.Event) -> None:
        self._start, self._end = start, end

    def wait(self) -> None:
        self._end.synchronize()

    def tell(self, log: Log, what: str, number: int) -> None:
        log.add("cpu", what, number, self._start, self._end)


class _VirtualLane:
    """Numbers are computed at once, and the device's worker takes the time (`DeviceView.host_task`)."""

    def __init__(self, device: torch.device) -> None:
        self._view = DeviceView(load("runtime._sim"), device.index or 0)

    def submit(self, work: Callable[[], object], duration_ns: int, after: torch.Event | None, name: str) -> Done:
        start = self._view.host_task(0, after, name=name)
        return _VirtualDone(start, self._view.host_task(duration_ns, after, work=work, name=name))

    def close(self) -> None:
        """The device's own worker goes on."""


class _ThreadDone:
    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def wait(self) -> None:
        self._future.result()

    def tell(self, log: Log, what: str, number: int) -> None:
        """The host's clock is another one."""


class _Thread:
    """A thread of its own; PyTorch's operators let others run meanwhile."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bayplan-updates")

    def submit(self, work: Callable[[], object], duration_ns: int, after: torch.Event | None, name: str) -> Done:
        def run() -> None:
            if after is not None:
                after.synchronize()
            work()

        return _ThreadDone(self._pool.submit(run))

    def close(self) -> None:
        self._pool.shutdown()
