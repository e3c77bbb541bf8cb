"""Measures a device of any kind: its clock, its memory, its limit."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from runtime.device.memory import index_of, require_accelerator
from runtime.device.native import load
from runtime.device.setup import CURRENT, use_sim
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.timeline.segments import SegmentSettings

MOST_SPLIT = 1 << 62
"""From here on PyTorch means that all blocks may be split."""


def sim_hardware() -> Hardware:
    """What the last `use_sim` modelled; raises `InvalidInput` where there was none."""
    if not CURRENT:
        raise InvalidInput("device sim is not set up in this process: call runtime.device.use_sim first")
    return CURRENT[-1].hardware


def segment_settings(device: torch.device, limit_bytes: int) -> SegmentSettings | None:
    """The rules by which an accelerator's allocator holds memory within a limit; None where it holds exact bytes."""
    if device.type == "cuda":
        told = torch.cuda.memory._snapshot(device)["allocator_settings"]
        split = told.get("max_split_size", -1)
        expandable = bool(told.get("expandable_segments", False))
        return SegmentSettings(
            limit_bytes=limit_bytes, expandable=expandable, max_split_bytes=split if 0 < split < MOST_SPLIT else None
        )
    options = CURRENT[-1].allocator if device.type == "sim" and CURRENT else None
    if options is None:
        return None
    return SegmentSettings(
        limit_bytes=limit_bytes,
        expandable=options.expandable_segments,
        max_split_bytes=options.max_split_size_bytes,
        most_rounding_bytes=options.max_non_split_rounding_bytes,
    )


def shapes_only(device: torch.device) -> bool:
    """Whether tensors of this device have shapes and no bytes: that of `use_sim(shapes_only=True)`."""
    return device.type == "sim" and bool(CURRENT) and CURRENT[-1].shapes_only


def accelerator(name: Literal["sim", "cuda", "cpu"]) -> torch.device:
    """The device of that name, ready to use; raises `InvalidInput` where it is not there."""
    if name == "sim":
        if torch._C._get_privateuse1_backend_name() != "sim":
            use_sim()
        return torch.device("sim", 0)
    if name == "cuda":
        if not torch.cuda.is_available():
            raise InvalidInput("device cuda is not available in this process: use sim or cpu")
        return torch.device("cuda", torch.cuda.current_device())
    if name == "cpu":
        return torch.device("cpu")
    raise InvalidInput(f"device {name!r} is unknown: choose of 'sim', 'cuda', 'cpu'")


def accelerator_of(device: torch.device | str | None) -> torch.device:
    """The device with its index, by default the current accelerator; raises `InvalidInput` where there is none such."""
    current = torch.accelerator.current_accelerator(check_available=True)
    try:
        found = current if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidInput(f"device {device!r} is none that PyTorch knows: name one, such as sim or cuda") from error
    if found is None or found.type == "cpu":
        raise InvalidInput(
            f"device {found or 'cpu'} has no streams to copy on: execute on an accelerator, such as sim or cuda"
        )
    count = torch.accelerator.device_count()
    if current is None or found.type != current.type or (found.index or 0) >= count:
        there = "none" if current is None else f"{count} {current.type}"
        raise InvalidInput(f"device {found} is not there, this process has {there}: name an accelerator that it has")
    without_index = str(found) == found.type
    return torch.device(found.type, torch.accelerator.current_device_index()) if without_index else found


def clock(device: torch.device) -> Callable[[], int]:
    """A clock in nanoseconds that first waits for the device: virtual on sim, the machine's elsewhere."""
    if device.type == "sim":
        native, index = load("runtime._sim"), index_of(device)

        def virtual() -> int:
            native.synchronize(index)
            return int(native.host_ns(index))

        return virtual
    if device.type == "cpu":
        return time.perf_counter_ns

    def real() -> int:
        torch.accelerator.synchronize(device)
        return time.perf_counter_ns()

    return real


@contextmanager
def limited_memory(device: torch.device, budget_bytes: int) -> Iterator[None]:
    """Lets an accelerator's allocator hold at most `budget_bytes` inside; what is in use already may be more.

    On sim the capacity is lowered. On CUDA, and on sim in mode `caching`, the allocator's share of the device is, which
    counts whole segments, those of other streams included; it may cache what is over the limit until the next request.
    Both are as before after it.

    Raises:
        InvalidInput: the device is the CPU, or the budget is not positive or above what is there.
    """
    require_accelerator(device)
    limit, available = (
        (_limit_sim, _sim_capacity(device)) if device.type == "sim" else (_limit_cuda, _cuda_memory(device))
    )
    if not 0 < budget_bytes <= available:
        raise InvalidInput(
            f"a budget of {budget_bytes} bytes is outside (0, {available}], the memory of device {device.type}: "
            "ask for what is there"
        )
    restore = limit(device, budget_bytes)
    try:
        yield
    finally:
        restore()


def move_limit(device: torch.device, budget_bytes: int) -> None:
    """Within `limited_memory`: let the allocator hold at most so many bytes from now on, instead."""
    (_limit_sim if device.type == "sim" else _limit_cuda)(device, budget_bytes)


def _sim_capacity(device: torch.device) -> int:
    return int(load("runtime._sim").capacity(index_of(device)))


def _cuda_memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def _limit_sim(device: torch.device, budget_bytes: int) -> Callable[[], None]:
    native, index = load("runtime._sim"), index_of(device)
    if native.caching():
        limit = native.limit(index)
        native.set_limit(budget_bytes, index)
        return lambda: native.set_limit(limit, index)
    before = _sim_capacity(device)
    native.set_capacity(budget_bytes, index)
    return lambda: native.set_capacity(before, index)


def _limit_cuda(device: torch.device, budget_bytes: int) -> Callable[[], None]:
    before = torch.cuda.get_per_process_memory_fraction(device)
    torch.cuda.set_per_process_memory_fraction(budget_bytes / _cuda_memory(device), device)
    return lambda: torch.cuda.set_per_process_memory_fraction(before, device)


def memory_limit_bytes(device: torch.device) -> int:
    """The bytes that an accelerator's allocator may hold now: sim's capacity, or this process's share of a GPU."""
    require_accelerator(device)
    if device.type == "sim":
        limit = load("runtime._sim").limit(index_of(device))
        return _sim_capacity(device) if limit is None else min(int(limit), _sim_capacity(device))
    return int(_cuda_memory(device) * torch.cuda.get_per_process_memory_fraction(device))
