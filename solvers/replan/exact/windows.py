"""Paths to and fro between two inner stages, which stages side by side share (README, proof 1, family E)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solvers.ir.replan import ReplanProblem

IntArray = npt.NDArray[np.int64]
_WIDTHS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56)
"""Stages that a window may have: a few, as wide ones say little more than those a bit less wide."""
_NARROW = 2
"""Of these, so many of the narrowest are looked at stage by stage."""
_NONE_US = -(2**60)
"""The fixed part of a path that does not exist."""


@dataclass(frozen=True, eq=False)
class Windows:
    """For windows of some widths w that end with stage a = 1…P (counted from the last), arrays [w, a − 1].

    With S_a layers in the last a stages such a path takes fixed + u · (turns · (S_a − S_{a−w}) + stays · (S_a −
    S_{a−1}) + S_a), u being forward and backward of a layer.
    """

    one_us: int
    fixed_us: IntArray
    turns: IntArray
    stays: IntArray
    _front: IntArray
    _each: IntArray

    @classmethod
    def of(cls, problem: ReplanProblem, extra_us: IntArray, microbatches: int, alone_us: int) -> "Windows | None":
        """Those of one shape, with the stages' extras; `alone_us`: a microbatch's way with its hops. None: no use."""
        depth, one_us, hop_us = len(extra_us), problem.forward_us + problem.backward_us, problem.p2p_us
        widths, stage = np.array([w for w in _WIDTHS if w < depth], dtype=np.int64)[:, None], np.arange(1, depth + 1)
        if not (one_us and hop_us and len(widths) >= _NARROW):
            return None  # without hops a window takes no longer than its longest stage
        left = microbatches - 1 - stage  # when the last sweep through all last stages begins
        turns = np.where((widths < stage) & (left >= widths), left // widths, 0)
        if not turns.any():
            return None
        stays, behind = left - turns * widths, np.concatenate([[0], np.cumsum(extra_us)])
        front = np.maximum(stage - widths, 0)
        fixed = alone_us + turns * (behind[stage] - behind[front] + 2 * (widths - 1) * hop_us)
        fixed += stays * extra_us + behind[stage] + 2 * (stage - 1) * hop_us
        exists = turns > 0
        fixed, stays = np.where(exists, fixed, _NONE_US), np.where(exists, stays, 0)
        each: IntArray = np.asarray(turns + stays + 1, dtype=np.int64)
        return cls(one_us, fixed, turns.astype(np.int64), stays.astype(np.int64), front, each)

    @cached_property
    def _narrow(self) -> list[list[int]]:
        rows: list[list[int]] = [row for t in (self.turns, self.stays, self._each) for row in t[:_NARROW].tolist()]
        return rows

    def narrow(self, limit_us: int) -> list[list[int]]:
        """What the narrowest windows leave, their turns, stays and all of these, of each stage."""
        return [*self._spare(limit_us)[:_NARROW].tolist(), *self._narrow]

    def _spare(self, limit_us: int) -> IntArray:
        return np.asarray((limit_us - self.fixed_us) // self.one_us)

    @cached_property
    def _of_stage(self) -> list[tuple[int, IntArray, IntArray, IntArray, IntArray]]:
        """From the first stage to the last that has some: windows' begins, turns, stays and all of these."""
        few = (self.turns > 0).sum(axis=0).tolist()  # where there are some, they are the narrowest
        return [
            (a, self._front[:n, a - 1], *(t[:n, a - 1].copy() for t in (self.turns, self.stays, self._each)))
            for a, n in reversed(list(enumerate(few, start=1)))
            if n
        ]

    def least(self, held: IntArray, limit_us: int) -> IntArray:
        """The fewest layers of the last 0…P stages, which hold at most `held` and in all the last of these."""
        fewest, spare = np.zeros_like(held), np.ascontiguousarray(self._spare(limit_us).T)
        fewest[-1] = held[-1]
        for stage, front, turns, stays, each in self._of_stage:
            if know := int(fewest[stage]):
                lacking = each * know - spare[stage - 1, : len(front)] - stays * int(held[stage - 1])
                fewest[front] = np.maximum(fewest[front], -(-lacking // turns))
        return fewest

    def most(self, held: IntArray, limit_us: int) -> IntArray:
        """The most layers of the last a = 1…P stages where the last 0…P hold at most `held`."""
        return np.asarray(
            ((self._spare(limit_us) + self.turns * held[self._front] + self.stays * held[:-1]) // self._each).min(
                axis=0
            )
        )
