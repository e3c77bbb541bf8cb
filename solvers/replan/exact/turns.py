"""Paths that turn between inner stages and then wait at a stage in front (README, proof 1, family F).

Where a pipeline has no more microbatches than stages, a stage k ≥ m has only backwards left when the first one comes:
the more layers one of them holds, the less any stages behind it may hold together.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solvers.ir.replan import ReplanProblem

IntArray = npt.NDArray[np.int64]
_MANY = 2**40
"""More layers than any model has: no limit."""


@dataclass(frozen=True, eq=False)
class Turns:
    """For the w stages up to a = 1…m − 1 (counted from the last), arrays [once or as often as can be, w − 1, a − 1].

    With N layers at the fullest stage k ≥ m, such a path takes fixed + waits · N + u · turns · (S_a − S_{a−w}), u being
    forward and backward of a layer; it exists where `turns` is not 0. `front` is m.
    """

    one_us: int
    front: int
    fixed_us: IntArray
    waits_us: IntArray
    turns: IntArray

    @classmethod
    def of(cls, problem: ReplanProblem, extra_us: IntArray, microbatches: int, alone_us: int) -> "Turns | None":
        """Those of one shape, with the stages' extras; `alone_us`: a microbatch's way with its hops. None: no use."""
        depth, one_us = len(extra_us), problem.forward_us + problem.backward_us
        if not one_us or not 1 < microbatches <= depth:
            return None
        widths, stage = np.arange(1, microbatches)[:, None], np.arange(1, microbatches)
        often = np.stack([np.ones((len(widths), len(stage)), dtype=np.int64), 1 + (microbatches - 1 - stage) // widths])
        turns = np.where(widths <= stage, often, 0)
        turns[1][turns[1] == 1] = 0
        behind = np.concatenate([[0], np.cumsum(extra_us)])
        around = behind[stage] - behind[np.maximum(stage - widths, 0)] + 2 * (widths - 1) * problem.p2p_us
        waits = np.maximum(microbatches - 1 - turns * widths, 0) * problem.backward_us
        return cls(one_us, microbatches, alone_us + turns * around, waits, turns)

    @cached_property
    def _each_us(self) -> IntArray:
        return np.maximum(self.turns, 1) * self.one_us

    def spare(self, limit_us: int, most: int) -> IntArray:
        """The most layers of the w stages up to a, [w − 1, a − 1], with so many at the fullest of those in front."""
        few = (limit_us - self.fixed_us - self.waits_us * most) // self._each_us
        return np.asarray(np.where(self.turns > 0, few, _MANY).min(axis=0))

    def least(self, fewest: IntArray, limit_us: int, most: int) -> IntArray:
        """The fewest layers of the last 0…P stages, which hold at least `fewest`."""
        fewest, spare = fewest.copy(), self.spare(limit_us, most)
        for stage in range(self.front - 1, 0, -1):
            behind = fewest[stage - 1 :: -1] if stage > 1 else fewest[:1]
            np.maximum(behind, fewest[stage] - spare[:stage, stage - 1], out=behind)
        return fewest
