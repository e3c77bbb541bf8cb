"""When swap-ins are issued, built from csrc/swap; `issue.Native` is its face for everyone else."""

from collections.abc import Sequence

from solvers.swap.evaluate import Choice, Instance

class Issuer:
    """What `issue.Issuer` does, number for number; ticks and bytes have 64 bits here.

    Raises RuntimeError for numbers beyond 64 bits, ValueError for tensors and ops that are none of the instance.
    """

    def __init__(self, given: Instance) -> None: ...
    def issue(
        self, selected: Sequence[int], eager: bool, anywhere: bool, most: int
    ) -> tuple[list[Choice], int, bool] | None:
        """What `issue.Issuer._pass` tells."""
    def makespan(self, choices: Sequence[Choice]) -> int | None: ...
