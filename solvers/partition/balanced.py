"""`balanced`: the layers as evenly as possible, whatever the stages cost."""

from dataclasses import dataclass
from typing import Literal, get_args

from solvers.ir.names import unknown
from solvers.ir.partition import PartitionPlan, PartitionProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.partition.answers import stuck_or_infeasible, with_plan
from solvers.partition.table import UNFIT, cost_array, costs_of

Remainder = Literal["front", "middle", "back"]


@dataclass(frozen=True)
class Balanced:
    """As many layers on every stage, as systems do by default; it looks at the costs only to see whether they fit.

    `remainder`: which stages get one layer more where the number of layers is no multiple of the number of stages
    (`even_split`). FEASIBLE with bound None; UNKNOWN where it does not fit but another partition does.
    """

    remainder: Remainder = "middle"
    NAME = "balanced"

    def __post_init__(self) -> None:
        """Refuse an unknown rule."""
        require_remainder("remainder", self.remainder)

    def solve(self, problem: PartitionProblem, limits: Limits, watch: Watch | None = None) -> Solution[PartitionPlan]:
        """The even partition, at once."""
        call = Call(self.NAME, limits)
        costs = cost_array(problem)
        layers = even_split(problem.layers, problem.stages, self.remainder)
        if costs_of(costs, layers).max() >= UNFIT:
            return stuck_or_infeasible(call, costs, layers)
        return with_plan(call, costs, layers)


def even_split(layers: int, stages: int, remainder: Remainder = "middle") -> tuple[int, ...]:
    """Layers of each stage, differing by one at most.

    The stages with one more are the first ones (`front`), the last ones (`back`), or those nearest to the middle, of
    two equally near ones the later (`middle`): the first stage holds the most microbatches and an embedding, the last
    one the output layer.
    """
    every, over = divmod(layers, stages)
    nearest = sorted(range(stages), key=lambda stage: (abs(2 * stage - stages + 1), -stage))
    order = {"front": range(stages), "middle": nearest, "back": range(stages)[::-1]}[remainder]
    more = set(list(order)[:over])
    return tuple(every + (stage in more) for stage in range(stages))


def require_remainder(name: str, value: str) -> None:
    """Refuse what names no rule for the remainder."""
    if value not in get_args(Remainder):
        raise unknown(f"choice for {name}", value, get_args(Remainder))
