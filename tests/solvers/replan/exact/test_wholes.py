"""Whole pipelines of given splits: their nodes, and who sends what."""

from solvers.replan.exact.wholes import whole_plan
from tests.solvers.replan.exact.test_market import flat_market


def test_whole_pipelines_keep_to_nodes_and_load() -> None:
    """Two kinds of nodes, three layers of which the first is larger."""
    market = flat_market({(0, 2): 4, (2, 3): 4}, [5, 1, 1])
    plan = whole_plan(market, 1, [((2, 1), 2)], 8)
    assert plan is not None and len(plan.pipelines) == 4
    assert plan.stages == ((0, 2), (2, 3)) and plan.flow.tolist() == [[4, 0], [0, 4]]
    assert whole_plan(market, 1, [((2, 1), 2)], 9) is None, "a fifth pipeline has no nodes"
    assert whole_plan(market, 0, [((1, 2), 2)], 2) is None, "nobody holds the last two layers"
    moved = whole_plan(market, 1, [((1, 2), 2)], 8)
    assert moved is not None and sum(moved.sent.values()) >= 4, "four nodes lack a layer each"
