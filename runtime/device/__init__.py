"""Devices: the simulated accelerator behind one call, and what measures a device of any kind.

`use_sim` registers the device type `sim` (csrc/README.md says what it models) at its first call, never on import: it
takes PyTorch's one slot for foreign accelerators, and PyTorch then prefers it to CUDA.
"""

from runtime.device.device import (
    DEFAULT_HARDWARE,
    MemoryStats,
    accelerator,
    accelerator_of,
    clock,
    limited_memory,
    memory_limit_bytes,
    memory_stats,
    reset_peak_memory,
    sim_hardware,
    use_sim,
)
from runtime.device.simulated import Counters, Race, RaceMode, SimDevice, Touch, TraceRecord

__all__ = [
    "DEFAULT_HARDWARE",
    "Counters",
    "MemoryStats",
    "Race",
    "RaceMode",
    "SimDevice",
    "Touch",
    "TraceRecord",
    "accelerator",
    "accelerator_of",
    "clock",
    "limited_memory",
    "memory_limit_bytes",
    "memory_stats",
    "reset_peak_memory",
    "sim_hardware",
    "use_sim",
]
