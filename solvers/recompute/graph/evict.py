"""A first plan in a second: run the graph, evict what is cheap and not needed soon, recompute on demand."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from solvers.recompute.graph.opt.search.evict import Eviction, run_through
from solvers.recompute.graph.replay import Instance, useful

FIRST = tuple(Eviction(cost, wait) for cost, wait in ((1.0, 0.5), (1.0, 1.0), (0.5, 1.0), (0.0, 1.0)))
TIGHT = (
    *(Eviction(cost, wait) for cost, wait in ((1.0, 0.25), (2.0, 1.0))),
    *(Eviction(cost, wait, deep=1000) for cost, wait in ((1.0, 1.0), (1.0, 0.5), (0.5, 0.5))),
)
"""What is tried where none of the first ones finds a plan."""


def evictions(
    given: Instance, stop: Callable[[], bool], careful: Callable[[], bool] | None = None
) -> Iterator[list[set[int]]]:
    """Plans as recomputations by stage: of all of `FIRST` that find one, or of one of `TIGHT`; none hides anything.

    The plans fit the budget by construction; replay them all the same. None come once `stop` answers True, and none of
    `TIGHT` once `careful` does, where that is given.
    """

    def plans(some: Sequence[Eviction], stop: Callable[[], bool]) -> Iterator[list[set[int]]]:
        passes = (run_through(given, eviction, random.Random(0), stop) for eviction in some)
        return (useful(given, found) for found in passes if found is not None)

    none = True
    for found in plans(FIRST, stop):
        none = False
        yield found
    if none:
        yield from islice(plans(TIGHT, careful or stop), 1)
