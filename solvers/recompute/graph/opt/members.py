"""The other solvers of the room as members of `opt`: each goes on from the best plan and the best bound so far."""

from solvers.engines.choice import is_present
from solvers.ir.solution import Status
from solvers.recompute.graph.answers import Search, first_plans, windows_of
from solvers.recompute.graph.intervals import Intervals, affordable
from solvers.recompute.graph.milp import search_model, slack_of
from solvers.recompute.graph.stages import column_count

TINY, SMALL, LARGE = 1_500, 3_000, 40_000
"""Columns of model M: fewer are asked first, as CP-SAT mostly solves them; up to `SMALL` CP-SAT takes them; up to
`LARGE` HiGHS has a turn, late."""
LAYERED = 300
"""Ops of graphs with repeated layers up to which intervals have a turn: beyond, they never improved a polished plan."""
MOST_LITERALS = 200_000
"""Pairs of an op and a window up to which the model of intervals is built."""


def quick(search: Search) -> None:
    """The first plans of the other solvers: evict, recompute on demand, drop and hide what can be."""
    first_plans(search, windows_of(search.given))


def whole(search: Search, engine: str) -> bool:
    """Model M, which holds every plan; answers whether an engine proved that there is none."""
    if search.done():
        return False
    if engine != "auto" or not is_present("cpsat"):
        name = "highs" if engine == "auto" else engine
    else:
        name = "cpsat" if column_count(search.given) < SMALL else "highs"
    used, notes = search.engine, list(search.notes)
    found = search_model(search, name, LARGE, search.observed)
    search.notes[:] = notes
    if found is None:
        return False
    if found.status is Status.INFEASIBLE:
        return search.objective is None
    if found.bound is not None and found.bound - slack_of(found) * max(1.0, found.bound) > search.bound:
        search.raise_bound(found.bound, slack_of(found))
    else:
        search.engine = used
    return False


def intervals(search: Search) -> None:
    """Retention intervals: the whole model from the best plan, then its neighbourhoods."""
    size = len(windows_of(search.given)) * len(search.given)
    if search.done() or size > MOST_LITERALS or not is_present("cpsat") or not affordable(search):
        return
    used, notes = search.engine, list(search.notes)
    Intervals(search, 1).run()
    search.engine = used
    search.notes[:] = notes
