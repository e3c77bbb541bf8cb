"""Training within a memory budget: sessions, and the execution of a single swap schedule."""

from runtime.execute.executor import Executed, HostMemoryShort, NoSegment, StepDiffers, StepRun, SwapExecutor
from runtime.execute.outcome import SwapCounts
from runtime.storage.access import ensure_in, is_swapped_out, release_host_memory, swap_out
from runtime.storage.gathering import gather
from runtime.swap.portfolio import PolicyChoice
from runtime.swap.report import IterationSummary, PolicyResult, SessionCounts, SessionReport
from runtime.swap.session import Session, session
from runtime.swap.stages import StageSettings

__all__ = [
    "Executed",
    "HostMemoryShort",
    "IterationSummary",
    "NoSegment",
    "PolicyChoice",
    "PolicyResult",
    "Session",
    "SessionCounts",
    "SessionReport",
    "StageSettings",
    "StepDiffers",
    "StepRun",
    "SwapCounts",
    "SwapExecutor",
    "ensure_in",
    "gather",
    "is_swapped_out",
    "release_host_memory",
    "session",
    "swap_out",
]
