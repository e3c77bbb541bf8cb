"""The systems that Lynx is compared with, and Lynx itself, as solvers of whole steps (README; Lynx §7.1).

Each is a policy for every stage, a way to cut the layers, and where recomputation may run ahead of the gradient: the
parameters `cut` and `hide` change the last two. FEASIBLE without a bound, INFEASIBLE where no plan of any kind fits,
UNKNOWN where the policy does not.
"""

from dataclasses import dataclass
from typing import get_args

from solvers.ir.names import unknown
from solvers.ir.pipeline import PipelinePlan, PipelineProblem
from solvers.ir.solution import Limits, Solution, Watch
from solvers.partition.policies import Cut, System
from solvers.partition.whole import solved_by
from solvers.timeline.pipeline.inputs import Hide

Answer = Solution[PipelinePlan]


def require_ways(cut: str, hide: str) -> None:
    """Refuse a cut or a way to use stalls that does not exist."""
    for name, value, known in (("cut", cut, get_args(Cut)), ("hide", hide, get_args(Hide))):
        if value not in known:
            raise unknown(f"choice for {name}", value, known)


@dataclass(frozen=True)
class FullStep:
    """Every layer again from its input, as Megatron-LM's full recomputation."""

    cut: Cut = "balanced"
    hide: Hide = "none"
    NAME = "full-step"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("full", self.cut, self.hide), problem, limits, watch)


@dataclass(frozen=True)
class SelectiveStep:
    """The attention core again (Korthikanti et al. 2022)."""

    cut: Cut = "balanced"
    hide: Hide = "none"
    NAME = "selective-step"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("selective", self.cut, self.hide), problem, limits, watch)


@dataclass(frozen=True)
class UniformStep:
    """Megatron-LM's uniform recomputation, chunks of one layer."""

    cut: Cut = "balanced"
    hide: Hide = "none"
    NAME = "uniform-step"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("uniform", self.cut, self.hide), problem, limits, watch)


@dataclass(frozen=True)
class BlockStep:
    """Megatron-LM's block recomputation: the first layers of a stage again, as few as fit."""

    cut: Cut = "balanced"
    hide: Hide = "none"
    NAME = "block-step"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("block", self.cut, self.hide), problem, limits, watch)


@dataclass(frozen=True)
class CheckmateStep:
    """The best recomputation that nothing hides."""

    cut: Cut = "balanced"
    hide: Hide = "none"
    NAME = "checkmate-step"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("checkmate-layer", self.cut, self.hide), problem, limits, watch)


@dataclass(frozen=True)
class AdaPipeStep:
    """AdaPipe: a knapsack of units for each stage, cut by the stages' times."""

    cut: Cut = "dp"
    hide: Hide = "none"
    NAME = "adapipe-step"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("adapipe", self.cut, self.hide), problem, limits, watch)


@dataclass(frozen=True)
class HeuStep:
    """Lynx-HEU's one policy for each stage, without its partitioning."""

    cut: Cut = "balanced"
    hide: Hide = "cooldown"
    NAME = "heu-step"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("heu", self.cut, self.hide), problem, limits, watch)


@dataclass(frozen=True)
class Lynx:
    """Lynx (§§4.2, 5): HEU's one policy a stage, the greedy partition, stalls of the cool-down."""

    cut: Cut = "greedy-lynx"
    hide: Hide = "cooldown"
    NAME = "lynx"

    def __post_init__(self) -> None:
        """Refuse unknown ways."""
        require_ways(self.cut, self.hide)

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The step of this policy."""
        return solved_by(self.NAME, System("heu", self.cut, self.hide), problem, limits, watch)
