"""What a device's memory, its allocator and page-locked memory are like."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from experiments.bench.offload.pinned import pinned_bytes
from runtime.device import clock, limited_memory, memory_limit_bytes, memory_stats
from runtime.storage.access import is_swapped_out, release_host_memory, swap_out
from solvers.ir.errors import InvalidInput

MIB = 1 << 20
SIZES = (700_000, 1_300_000, 3_200_001, 9_500_000, 10_500_000, 33_000_000)
"""Bytes of requests that are rounded, or leave a rest that is not split off."""
PINNED_MIB = (3, 33, 80, 300)
HELD, WANTED = 64 * MIB, 2048 * MIB
"""Bytes of each block that is held while a request of so many is refused."""


def memory_totals(device: torch.device) -> Mapping[str, Any]:
    """What two sources say the device has: a session without a budget takes the one, its limit the other."""
    free, total = torch.accelerator.get_memory_info(device)
    return {"total": total, "limit": memory_limit_bytes(device), "taken_by_context": total - free}


def workspaces(device: torch.device) -> Mapping[str, Any]:
    """Bytes that stay after matrix products and belong to no tensor: cuBLAS' and cuBLASLt's workspaces."""
    before = memory_stats(device).allocated_bytes
    matrix = torch.ones(512, 512, device=device, dtype=torch.bfloat16)
    results = (torch.nn.functional.linear(matrix, matrix, matrix[0]), matrix @ matrix)
    own = sum(tensor.untyped_storage().nbytes() for tensor in (matrix, *results))
    torch.accelerator.synchronize(device)
    return {"left_bytes": memory_stats(device).allocated_bytes - before - own}


def block_sizes(device: torch.device) -> Mapping[str, Any]:
    """What requests are counted as, and what segments they take."""
    rows = []
    for size in SIZES:
        torch.accelerator.empty_cache()
        before = memory_stats(device)
        held = torch.empty(size, dtype=torch.uint8, device=device)
        now = memory_stats(device)
        counted = now.allocated_bytes - before.allocated_bytes
        rows.append({"asked": size, "counted": counted, "segments": now.reserved_bytes - before.reserved_bytes})
        del held
    return {"rows": rows}


def pinned_rounding(device: torch.device) -> Mapping[str, Any]:
    """What page-locked blocks take of the host, how long that takes, and what is given back after them."""
    rows = []
    for size in (count * MIB for count in PINNED_MIB):
        before, began = pinned_bytes(device), time.perf_counter()
        block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        spent = time.perf_counter() - began
        rows.append({"asked": size, "held": pinned_bytes(device) - before, "ms": round(spent * 1e3, 3)})
        del block
    return {"rows": rows, "held_after_all_died": pinned_bytes(device)}


def refused_allocation(device: torch.device) -> Mapping[str, Any]:
    """What a request costs that is refused, and what it does to the cache: the price of a swap-in without room."""
    torch.accelerator.empty_cache()
    room = memory_stats(device).reserved_bytes + 16 * HELD
    rows = []
    with limited_memory(device, min(room, memory_limit_bytes(device))):
        live = [torch.empty(HELD, dtype=torch.uint8, device=device) for _ in range(4)]
        cached = [torch.empty(HELD, dtype=torch.uint8, device=device) for _ in range(8)]
        cached.clear()
        before = memory_stats(device)
        now_ns = clock(device)
        for _ in range(3):
            began = now_ns()
            try:
                torch.empty(WANTED, dtype=torch.uint8, device=device)
                raise InvalidInput(f"a request of {WANTED} bytes was served beyond the limit: there is none")
            except torch.OutOfMemoryError:
                rows.append(round((now_ns() - began) / 1e6, 3))
        after = memory_stats(device)
        live.clear()
    return {
        "ms": rows,
        "reserved_before": before.reserved_bytes,
        "reserved_after": after.reserved_bytes,
        "retries": after.retries - before.retries,
        "ooms": after.ooms - before.ooms,
    }


def swap_round_trip(device: torch.device) -> Mapping[str, Any]:
    """One tensor out and back: its bits, its view's, device memory meanwhile, page-locked memory after."""
    values = torch.arange(16 * MIB, device=device, dtype=torch.float32)
    expected, view = values.clone(), values.view(-1, 1024)[3]
    before = memory_stats(device).allocated_bytes
    swap_out(values)
    torch.accelerator.synchronize(device)
    left, freed = is_swapped_out(values), before - memory_stats(device).allocated_bytes
    same = torch.equal(values, expected) and torch.equal(view, expected.view(-1, 1024)[3])
    del values, view, expected
    torch.accelerator.synchronize(device)
    release_host_memory()
    if not (left and same):
        raise RuntimeError(f"a tensor that was swapped out: left {left}, came back the same {same}")
    return {"left": left, "same": same, "freed_bytes": freed, "pinned_after": pinned_bytes(device)}
