"""Solvers that misbehave in ways that real ones seldom do, registered only in tests."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.cli import main
from solvers.ir import Limits, Solution, Status, SwapPlan, SwapProblem, Watch
from solvers.planner import SOLVERS, SolverEntry
from solvers.swap import GreedySwap

FAKES = {
    "slow-swap": SolverEntry("swap", "tests.experiments.commands.fakes:SlowSwap", "waits, and asks whether to go on"),
    "broken-swap": SolverEntry("swap", "tests.experiments.commands.fakes:BrokenSwap", "raises"),
    "helpless-swap": SolverEntry("swap", "tests.experiments.commands.fakes:HelplessSwap", "finds nothing"),
}


def run(arguments: Sequence[str]) -> int:
    """`bayplan` with the fakes."""
    SOLVERS.update(FAKES)
    return main(arguments)


@dataclass(frozen=True)
class SlowSwap:
    """Greedy's plan after `seconds`; `stubborn` never asks, `helpless` has none. Touches `begun` where it is a path."""

    seconds: float = 0.0
    stubborn: bool = False
    begun: str = ""
    mood: Literal["calm", "hasty"] = "calm"
    rounds: int | None = None
    start: SwapPlan | None = None
    helpless: bool = False

    def solve(self, problem: SwapProblem, limits: Limits, watch: Watch | None = None) -> Solution[SwapPlan]:
        """Wait in steps of 20 ms, each told to `watch`."""
        if self.begun:
            Path(self.begun).touch()
        ends = time.monotonic() + self.seconds
        while time.monotonic() < ends:
            if watch is not None and watch(80.0, 60.0, 0.0) and not self.stubborn:
                break
            time.sleep(0.02)
        if self.helpless:
            return HelplessSwap().solve(problem, limits, watch)
        return GreedySwap().solve(problem, limits)


@dataclass(frozen=True)
class BrokenSwap:
    """Has a bug."""

    def solve(self, problem: SwapProblem, limits: Limits, watch: Watch | None = None) -> Solution[SwapPlan]:
        """Raise."""
        raise RuntimeError("first line\nsecond line")


@dataclass(frozen=True)
class HelplessSwap:
    """Ends without a plan or a proof."""

    def solve(self, problem: SwapProblem, limits: Limits, watch: Watch | None = None) -> Solution[SwapPlan]:
        """UNKNOWN."""
        return Solution(status=Status.UNKNOWN, plan=None, solver="helpless-swap", reason="nothing within the limits")
