"""Training within a memory budget: sessions, and the execution of a single swap schedule."""

from runtime.swap.access import ensure_in, is_swapped_out, release_host_memory, swap_out
from runtime.swap.executor import Executed, HostMemoryShort, StepDiffers, StepRun, SwapExecutor
from runtime.swap.online.portfolio import PolicyChoice
from runtime.swap.online.report import IterationSummary, PolicyResult, SessionCounts, SessionReport
from runtime.swap.online.session import Session, session
from runtime.swap.online.stages import StageSettings
from runtime.swap.outcome import SwapCounts

__all__ = [
    "Executed",
    "HostMemoryShort",
    "IterationSummary",
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
    "is_swapped_out",
    "release_host_memory",
    "session",
    "swap_out",
]
