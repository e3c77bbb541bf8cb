"""A layer's policy by place: what is stored, what each window recomputes, what is left to the critical path."""

from dataclasses import dataclass
from functools import cached_property

from solvers.ir.pipeline import PipelineProblem
from solvers.ir.recompute import LayerGroup
from solvers.partition.stages import came_along


@dataclass(frozen=True)
class LayerPolicy:
    """What one layer does: ops by place, those in windows by window.

    `ahead`: those of backward windows that others are computed from (formats.md 15.3); `forward` windows come first.
    """

    stored: tuple[int, ...]
    windows: tuple[tuple[int, ...], ...]
    critical: tuple[int, ...]
    ahead: tuple[int, ...]
    forward: int

    @classmethod
    def of(cls, problem: PipelineProblem, group: LayerGroup) -> "LayerPolicy":
        """The policy of a group's layers."""
        places = range(len(problem.windows) + 1)
        placed = [tuple(sorted(i for i, at in group.recomputed if at == w)) for w in places]
        names = [*(window.phase for window in problem.windows), "critical"]
        ahead = came_along(problem.ops, {i: names[w] for i, w in group.recomputed})
        forward = sum(window.phase == "forward" for window in problem.windows)
        return cls(tuple(sorted(group.stored)), tuple(placed[:-1]), placed[-1], tuple(ahead), forward)

    @cached_property
    def in_forward(self) -> tuple[int, ...]:
        """All that forward windows recompute."""
        return tuple(sorted(i for ops in self.windows[: self.forward] for i in ops))

    @cached_property
    def in_backward(self) -> tuple[int, ...]:
        """All that backward windows recompute."""
        return tuple(sorted(i for ops in self.windows[self.forward :] for i in ops))
