"""The joint planner's innermost loop, built from csrc/joint; `lanes.Lanes` is its face for everyone else."""

from collections.abc import Sequence

import numpy as np

class Lanes:
    """Times of one state after another, as `solvers.joint.lanes.Lanes` counts them; all in ticks and bytes.

    Lists are those of `State`; `talking`: by stage, 1 where communication has the link to itself, empty where none has;
    `room`: by stage, bytes beside what is there. Values beyond 64 bits raise TypeError or OverflowError.
    """

    def __init__(
        self, size: Sequence[int], out_time: Sequence[int], in_time: Sequence[int], start: Sequence[int]
    ) -> None: ...
    def forward(
        self,
        ticks: list[int],
        leaves: list[list[int]],
        returns: list[list[tuple[int, int]]],
        away: dict[tuple[int, int], int],
        talking: bytes,
        room: np.ndarray,
        spare: int,
        until: int,
    ) -> int | None:
        """When the stages before `until` have ended, were nothing to come back; None: they wait more than `spare`."""

    def all(
        self,
        ticks: list[int],
        leaves: list[list[int]],
        returns: list[list[tuple[int, int]]],
        away: dict[tuple[int, int], int],
        talking: bytes,
        room: np.ndarray,
        spare: int,
    ) -> int | None:
        """When all stages have ended; None: they wait more than `spare`."""

    def keep(self, early: int) -> int:
        """The last pass was of a state that stays.

        Returns the stage before which one in `early` of the stages lies that something returns from, 0 if none are.
        """

    def times(self) -> list[int]:
        """When each stage started, by the last pass of all stages that came to its end."""

    def issued(self) -> list[tuple[int, int, int, int]]:
        """(op, the stage behind which it left, its reader, the stage from which it returns), as last issued."""
