"""Patterns where windows are ample: the bound's own prices are zero there, and say nothing."""

import pytest

from solvers.ir.solution import Limits
from solvers.recompute.graph.answers import Search
from solvers.recompute.graph.opt.bound.cut import CutRelaxation
from solvers.recompute.graph.opt.bound.shapes import layered_shapes
from solvers.recompute.graph.opt.bound.tree import BoundSearch
from solvers.recompute.graph.opt.layers import find_layers
from solvers.recompute.graph.opt.planning.layered import LayeredPlanner
from solvers.recompute.graph.opt.solver import Opt
from solvers.recompute.graph.replay import instance
from tests.solvers.recompute.graph.layered import transformer


@pytest.mark.parametrize("layers", [10, 16])
def test_where_windows_are_ample_nothing_is_computed_again_outside_them(layers: int) -> None:
    given = instance(transformer(layers=layers, position=0.7))
    found = find_layers(given)
    assert found is not None
    search = Search(given, "opt", Limits(work=0.2))
    bounds = BoundSearch(CutRelaxation(given, next(iter(layered_shapes(given, found)))), "auto")
    assert bounds.root(60.0)
    assert bounds.prices().byte == 0.0  # at this price any pattern is as good as another
    LayeredPlanner(search, found, bounds, "auto").run(60.0)
    assert search.objective == given.base


def test_a_watch_hears_of_no_plan_that_is_not_there() -> None:
    told: list[float] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        told.extend([] if incumbent is None else [incumbent])
        return False

    answer = Opt().solve(transformer(layers=10, position=0.3), Limits(work=0.05), watch)
    assert answer.objective is not None
    assert min(told) == answer.objective  # counts and neighbourhoods have objectives of their own
