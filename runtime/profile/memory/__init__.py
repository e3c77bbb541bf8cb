"""The memory-aware profiler of ProTrain §3.2: one complete trace, and the peak of any configuration from it."""

from runtime.blocks.blocks import find_blocks
from runtime.blocks.policies import block_policies
from runtime.profile.memory.measure import profile_memory
from runtime.profile.memory.peaks import activation_peak_bytes, peak_bytes, turn_bytes
from runtime.profile.memory.profile import MemoryProfile, ProfiledBlock, ProfiledParameter
from runtime.profile.memory.reading import optimizer_bytes

__all__ = [
    "MemoryProfile",
    "ProfiledBlock",
    "ProfiledParameter",
    "activation_peak_bytes",
    "block_policies",
    "find_blocks",
    "optimizer_bytes",
    "peak_bytes",
    "profile_memory",
    "turn_bytes",
]
