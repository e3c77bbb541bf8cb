"""The `partition` kind: how many layers each pipeline stage gets (formats.md 6; Lynx §5)."""

from typing import ClassVar

from solvers.ir.fields import Count, Microseconds, require
from solvers.ir.problem import Plan, Problem


class PartitionProblem(Problem, frozen=True, kw_only=True):
    """`cost_us[p][n]` is stage p's cost with n layers, n = 0…layers; None where n layers do not fit."""

    stages: Count
    layers: Count
    cost_us: tuple[tuple[Microseconds | None, ...], ...]
    KIND: ClassVar[str] = "partition"

    def __post_init__(self) -> None:
        """Refuse a cost table of the wrong shape."""
        require(
            len(self.cost_us) == self.stages,
            f"cost_us has {len(self.cost_us)} rows for {self.stages} stages: give one each",
        )
        for stage, row in enumerate(self.cost_us):
            require(
                len(row) == self.layers + 1,
                f"cost_us[{stage}] has {len(row)} entries for 0…{self.layers} layers: give {self.layers + 1}",
            )


class PartitionPlan(Plan, frozen=True, kw_only=True):
    """`layers[p]` is the number of layers of stage p, each at least 1, summing to the problem's layers."""

    layers: tuple[Count, ...]
