"""What stays on the device all the time, moved together: segments that it only half fills go back to the driver."""

from collections.abc import Sequence

import torch

from runtime.device import memory_stats
from runtime.device.held import Held, held_memory
from runtime.device.native import core
from runtime.storage.access import tensors_in
from solvers.ir.requests import HeldRun

MOST_IN_VAIN = 4
"""So many segments are emptied whose contents then take a new one, before no more are tried."""
MOST_AT_ONCE_BYTES = 1 << 30
"""Fuller runs of pages stay: all that lies in one leaves for the host before it returns."""


def gather(*values: object) -> int:
    """Move the storages of tensors (in modules, optimizers, …) into as few segments as is easy; the bytes given back.

    An optimizer makes its states in the first step, among activations: when these have gone, each segment of 20 MiB
    may hold one small state, and a plan then finds its blocks nowhere. Call it once after that step and before the
    profile. The emptiest segments are cleared first, one at a time over the host. Bytes and views stay what they are,
    addresses do not: nothing may know them (CUDA graphs, another library). Does nothing where the allocator holds exact
    bytes. Raises `RuntimeError` where the host has no room for a segment.
    """
    tensors = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors_in(values)}
    tensors = {address: tensor for address, tensor in tensors.items() if core.why_it_stays(tensor) is None}
    devices = {tensor.device for tensor in tensors.values()}
    return sum(_gathered(device, [one for one in tensors.values() if one.device == device]) for device in devices)


def _gathered(device: torch.device, tensors: Sequence[torch.Tensor]) -> int:
    torch.accelerator.empty_cache()
    before = memory_stats(device).reserved_bytes
    for small in (False, True):
        _gather_pool(device, tensors, small)
    core.trim_host()
    return before - memory_stats(device).reserved_bytes


def _gather_pool(device: torch.device, tensors: Sequence[torch.Tensor], small: bool) -> None:
    in_vain, least, done = 0, memory_stats(device).reserved_bytes, set[int]()
    while in_vain < MOST_IN_VAIN:
        held = held_memory(device)
        found = None if held is None else _emptiest(held, tensors, done, small)
        if found is None:
            break
        for tensor in found:
            core.swap_out(tensor)
        torch.accelerator.empty_cache()
        for tensor in sorted(found, key=lambda tensor: -tensor.untyped_storage().nbytes()):
            core.ensure_in(tensor)
        reserved = memory_stats(device).reserved_bytes
        in_vain, least = (in_vain + 1, least) if reserved >= least else (in_vain, reserved)


def _emptiest(held: Held, tensors: Sequence[torch.Tensor], done: set[int], small: bool) -> list[torch.Tensor] | None:
    """What lies in the segment, or the run of pages, that is used least, of those that only these tensors use."""
    at = {tensor.untyped_storage().data_ptr() - held.base: tensor for tensor in tensors}
    for run in sorted(held.runs, key=lambda run: -_free(run)):
        blocks = _addresses(run)
        if run.small != small or run.address + held.base in done or not _free(run) or not blocks:
            continue
        if run.expandable and _used(run) > MOST_AT_ONCE_BYTES:
            continue
        if all(address in at for address in blocks):
            done.add(run.address + held.base)
            return [at[address] for address in blocks]
    return None


def _addresses(run: HeldRun) -> list[int]:
    found, address = [], run.address
    for size, used in run.blocks:
        if used:
            found.append(address)
        address += size
    return found


def _used(run: HeldRun) -> int:
    return sum(size for size, used in run.blocks if used)


def _free(run: HeldRun) -> int:
    return sum(size for size, used in run.blocks if not used)


def _alike(one: HeldRun, other: HeldRun) -> bool:
    return (one.stream, one.small, one.expandable) == (other.stream, other.small, other.expandable)
