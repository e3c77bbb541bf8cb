"""What of a layer matters to recomputation: the ops that a backward op depends on, and the windows that are open."""

from dataclasses import dataclass
from functools import cached_property

from solvers.ir.recompute import LayerOp, RecomputeLayerProblem, Window

HIDDEN_COPIES = 2
"""Bytes that an op recomputed in a backward or stall window counts, in outputs: two layers' worth may be alive."""


@dataclass(frozen=True)
class Layer:
    """A layer's ops and windows, as every query about it shares them (README, Front).

    `last_stage` closes the forward windows. Ops are kept under their own numbers. `late`: what backward windows hide is
    counted, too, for a layer that has none. `again_bytes` as in the problem.
    """

    ops: tuple[LayerOp, ...]
    windows: tuple[Window, ...]
    last_stage: bool = False
    late: bool = False
    again_bytes: tuple[int, ...] | None = None

    @classmethod
    def of(cls, problem: RecomputeLayerProblem) -> "Layer":
        """The layer of a problem."""
        late = problem.last_windowless and any(window.phase == "backward" for window in problem.windows)
        return cls(problem.ops, problem.windows, problem.last_stage, late, problem.again_bytes)

    @property
    def critical(self) -> int:
        """The number of the critical path among the windows."""
        return len(self.windows)

    @cached_property
    def useful(self) -> tuple[int, ...]:
        """Ops that are needed or that a needed op is computed from: no other op is ever stored or recomputed."""
        wanted = [op.needed for op in self.ops]
        for i in range(len(self.ops) - 1, -1, -1):
            if wanted[i]:
                for j in self.ops[i].inputs:
                    wanted[j] = True
        return tuple(i for i, useful in enumerate(wanted) if useful)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each op the useful ops that read its output."""
        found: list[list[int]] = [[] for _ in self.ops]
        for i in self.useful:
            for j in set(self.ops[i].inputs):
                found[j].append(i)
        return tuple(map(tuple, found))

    @cached_property
    def open(self) -> tuple[int, ...]:
        """Windows in which something may be recomputed."""
        return tuple(w for w, window in enumerate(self.windows) if not (self.last_stage and window.phase == "forward"))

    def fits(self, i: int, w: int) -> bool:
        """Whether op i alone may be recomputed in window w."""
        return w in self.open and not self.ops[i].comm and self.ops[i].time_us <= self.windows[w].time_us

    def again(self, i: int) -> int:
        """What op i adds to the working set where it is recomputed, once."""
        return self.ops[i].output_bytes if self.again_bytes is None else self.again_bytes[i]

    def late_us(self, i: int, w: int) -> int:
        """What op i in window w costs a layer that has no backward windows."""
        return self.ops[i].time_us if w < self.critical and self.windows[w].phase == "backward" else 0

    def unit(self, w: int) -> tuple[int, int]:
        """(forward bytes of a byte of output, working bytes of one of `again`) in window w, or on the critical path."""
        if w == self.critical:
            return 0, 1
        return (1, 0) if self.windows[w].phase == "forward" else (0, HIDDEN_COPIES)
