"""Executes a swap schedule on a real training step; decides nothing."""

from runtime.swap.access import ensure_in, is_swapped_out, release_host_memory, swap_out
from runtime.swap.executor import Executed, HostMemoryShort, StepRun, SwapExecutor
from runtime.swap.outcome import SwapCounts

__all__ = [
    "Executed",
    "HostMemoryShort",
    "StepRun",
    "SwapCounts",
    "SwapExecutor",
    "ensure_in",
    "is_swapped_out",
    "release_host_memory",
    "swap_out",
]
