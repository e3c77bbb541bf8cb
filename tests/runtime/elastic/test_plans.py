"""Any solver's plans become layouts and walks, whoever is gone; where it has none, the sentence says why."""

import pytest

from runtime.elastic.measure import Link
from runtime.elastic.plans import Planning
from solvers.ir import InvalidInput
from solvers.planner import solver_names
from tests.runtime.elastic.jobs import LAYERS, MICROBATCHES, costs

REROUTING = {"reroute", "recycle"}


@pytest.mark.parametrize("solver", solver_names("replan"))
@pytest.mark.parametrize("gone", range(4))
def test_each_solver_goes_on_with_whoever_is_left(solver: str, gone: int) -> None:
    """All layers are held, each microbatch is scored once, and only who is left does anything."""
    planning = Planning(costs(4), solver, Link())
    begun = planning.start(range(4), 2)
    left = [node for node in range(4) if node != gone]
    found = planning.decide(begun.layout, left)
    assert found.restored == ""
    assert {layer for run in found.layout.runs().values() for layer in range(*run)} == set(range(LAYERS))
    assert set(found.walks) <= set(left)
    scored = [
        action.microbatch
        for walk in found.walks.values()
        for action in walk
        if action.do == "compute" and action.direction == "forward" and action.op == LAYERS - 1
    ]
    assert sorted(scored, key=lambda one: one or 0) == list(range(MICROBATCHES))
    assert ("rerouted around" in found.layout.text()) == (solver in REROUTING)


@pytest.mark.parametrize("solver", sorted(REROUTING))
def test_where_a_solver_has_no_plan_its_own_reason_is_told(solver: str) -> None:
    """Three pipelines of unlike microbatches: rerouting is for alike ones, and cannot begin anew."""
    planning = Planning(costs(6), solver, Link())
    layout = planning.start(range(6), 2).layout
    with pytest.raises(InvalidInput) as raised:
        planning.decide(layout, range(5))
    assert str(raised.value).startswith("5 processes are left, but the job needs more (rerouting needs running pipel")
    assert str(raised.value).endswith(f", or choose another solver than {solver}")
