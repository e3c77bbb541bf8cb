"""The memory-aware profiler of ProTrain §3.2: one complete trace, and the peak of any configuration from it."""

from runtime.blocks.blocks import find_blocks
from runtime.blocks.policies import block_policies
from runtime.profile.memory.measure import profile_memory
from runtime.profile.memory.peaks import activation_peak_bytes, peak_bytes
from runtime.profile.memory.profile import MemoryProfile, ProfiledBlock, ProfiledParameter

__all__ = [
    "MemoryProfile",
    "ProfiledBlock",
    "ProfiledParameter",
    "activation_peak_bytes",
    "block_policies",
    "find_blocks",
    "peak_bytes",
    "profile_memory",
]
