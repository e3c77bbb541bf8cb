"""Page-locked host memory as PyTorch's allocator for a device counts it, cached blocks and rounding included, and ours.

What Bayplan registers with CUDA by itself PyTorch knows nothing of: it is added.
"""

import torch

from runtime.device.native import core
from runtime.storage.access import release_host_memory
from solvers.ir.errors import InvalidInput


def pinned_bytes(device: torch.device, *, peak: bool = False) -> int:
    """Bytes now, or the most since `forget_pinned`; raises `InvalidInput` where PyTorch does not say."""
    if device.type == "sim":
        from runtime.device.native import sim

        return int(sim.counters()["pinned_peak_bytes" if peak else "pinned_bytes"])
    told = getattr(torch.cuda, "host_memory_stats", None)
    if told is None:
        raise InvalidInput(f"torch {torch.__version__} keeps no statistics of page-locked memory: use 2.11 or newer")
    return int(told()[f"allocated_bytes.{'peak' if peak else 'current'}"]) + _registered_bytes(device, peak=peak)


def _registered_bytes(device: torch.device, *, peak: bool) -> int:
    """What the swap engine page-locks beside PyTorch's host allocator."""
    own = core.host_stats(device)
    if own.fallback:  # then PyTorch's allocator gave it, and counts it
        return 0
    return own.peak_held_bytes if peak else own.held_bytes


def forget_pinned(device: torch.device) -> None:
    """Give back what nobody uses, Bayplan's and PyTorch's; the peak starts again, on sim with its next `use_sim`."""
    release_host_memory()
    if device.type != "cuda":
        return
    empty = getattr(torch.accelerator, "empty_host_cache", None) or getattr(torch._C, "_host_emptyCache", None)
    if empty is not None:
        empty()
    torch.cuda.reset_peak_host_memory_stats()
    core.reset_host_peak(device)
