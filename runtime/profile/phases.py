"""Which phase an operator belongs to, told from the ranges that autograd and the optimizers mark."""

from collections.abc import Sequence
from itertools import groupby

from solvers.ir.graph import Phase

RANGES: dict[str, Phase] = {"backward": "backward", "optimizer": "optimizer"}


def settle_phases(ranges: Sequence[str]) -> tuple[Phase, ...]:
    """Phase of each operator from its range (`outside`, `backward` or `optimizer`).

    Operators outside of both ranges belong to the forward pass, unless they follow a backward pass and lead to an
    optimizer's step or to the end: gradient clipping, statistics and the like are the optimizer's.
    """
    runs = [(label, len(list(run))) for label, run in groupby(ranges)]
    phases: list[Phase] = []
    for number, (label, length) in enumerate(runs):
        before = runs[number - 1][0] if number > 0 else "start"
        after = runs[number + 1][0] if number + 1 < len(runs) else "end"
        leads_out = before in RANGES and after in ("optimizer", "end")
        phases += [RANGES.get(label, "optimizer" if leads_out else "forward")] * length
    return tuple(phases)
