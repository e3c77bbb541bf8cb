"""Patterns where windows are ample: the bound's own prices are zero there, and say nothing."""

import pytest
from msgspec.structs import replace

from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.ir import RecomputeGraphProblem, RecomputeOp
from solvers.ir.solution import Limits
from solvers.recompute.graph.answers import Search
from solvers.recompute.graph.opt.bound.cut import CutRelaxation
from solvers.recompute.graph.opt.bound.shapes import layered_shapes
from solvers.recompute.graph.opt.bound.tree import BoundSearch
from solvers.recompute.graph.opt.layers import find_layers
from solvers.recompute.graph.opt.planning import layered
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


def test_what_runs_before_the_layers_is_no_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder before the decoder's layers has more operators than one of these, and more that are read later."""
    monkeypatch.setattr(layered, "ENUMERATED", 4)  # larger layers' patterns are grown from the relaxation's
    problem = behind_a_stem(transformer(layers=8, position=0.4), 30)
    answer = Opt().solve(problem, Limits(work=0.02))
    assert answer.plan is not None
    verdict = judge_recompute_graph(problem, answer.plan)
    assert verdict.clean, verdict.violations
    assert verdict.objective_us == answer.objective


def behind_a_stem(problem: RecomputeGraphProblem, ops: int) -> RecomputeGraphProblem:
    """The same behind a chain of operators, each of which the last one reads, too."""
    stem = [
        RecomputeOp(name=f"stem {i}", time_us=20 + i, output_bytes=64 + i, inputs=(i - 1,) * (i > 0), comm=False)
        for i in range(ops)
    ]
    rest = [replace(op, inputs=tuple(ops + j for j in op.inputs)) for op in problem.ops]
    rest[0] = replace(rest[0], inputs=(ops - 1,))
    rest[-1] = replace(rest[-1], inputs=(*range(ops), *rest[-1].inputs))
    more = sum(op.output_bytes for op in stem)
    return replace(problem, ops=(*stem, *rest), budget_bytes=problem.budget_bytes + more)
