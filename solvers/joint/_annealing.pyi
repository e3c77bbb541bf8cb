"""The joint planner's local search, built from csrc/joint; `anneal.Native` is its face for everyone else."""

from collections.abc import Sequence

from solvers.joint.choice import Shadow
from solvers.joint.given import Given

class Annealing:
    """What `anneal.Annealing` does, step for step; all in ticks and bytes, which have 64 bits here.

    From a choice: `again`, by stage, and `away`, (op, stage that touches it last, the one behind which it leaves), both
    in ascending order. `random`: 624 words and the place of the next one, as `random.Random.getstate()` tells them;
    `share`: that of steps that change many decisions; `shadow`: what a choice owes beside its time. Raises
    RuntimeError for numbers beyond 64 bits, ValueError for another `random`.
    """

    def __init__(
        self,
        given: Given,
        again: Sequence[Sequence[int]],
        away: Sequence[tuple[int, int, int]],
        random: Sequence[int],
        share: float,
        shadow: Shadow,
    ) -> None: ...
    def run(self, first: int, last: int, steps: int, hot: float, cooled: float) -> None:
        """Steps `first` to `last` - 1 of `steps`; the first of all may lose `hot` ticks, one time in e.

        The last of all may lose `cooled` times less. Other Python threads go on meanwhile.
        """
    now: int
    """Ticks of the choice at hand, what it owes included; 2**62 if not valid."""
    best: int
    """Ticks of `draft()`."""
    def draft(self) -> tuple[list[list[int]], list[tuple[int, int, int, int, int]]]:
        """What runs again by stage, and of what leaves: op, the stages that touch it last, behind which it leaves, that
        reads it next, and from which on it returns."""
    def random(self) -> list[int]:
        """The state of the random numbers by now."""
