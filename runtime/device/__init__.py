"""Devices: the simulated accelerator behind one call, and what measures a device of any kind.

`use_sim` registers the device type `sim` (csrc/README.md says what it models) at its first call, never on import: it
takes PyTorch's one slot for foreign accelerators, and PyTorch then prefers it to CUDA.
"""

from runtime.device.caching import CachingAllocator, Stitches
from runtime.device.device import (
    accelerator,
    accelerator_of,
    clock,
    limited_memory,
    memory_limit_bytes,
    move_limit,
    segment_settings,
    shapes_only,
    sim_hardware,
)
from runtime.device.host_work import host_access
from runtime.device.memory import MemoryStats, memory_stats, reset_peak_memory
from runtime.device.outside import outside_bytes
from runtime.device.records import Counters, Race, Touch, TraceRecord
from runtime.device.setup import DEFAULT_HARDWARE, SimOptions, use_sim
from runtime.device.simulated import RaceMode, SimDevice
from runtime.device.view import DeviceView

__all__ = [
    "DEFAULT_HARDWARE",
    "CachingAllocator",
    "Counters",
    "DeviceView",
    "MemoryStats",
    "Race",
    "RaceMode",
    "SimDevice",
    "SimOptions",
    "Stitches",
    "Touch",
    "TraceRecord",
    "accelerator",
    "accelerator_of",
    "clock",
    "host_access",
    "limited_memory",
    "memory_limit_bytes",
    "memory_stats",
    "move_limit",
    "outside_bytes",
    "reset_peak_memory",
    "segment_settings",
    "shapes_only",
    "sim_hardware",
    "use_sim",
]
