"""Starts of model P: what a valid plan hides is taken over as far as the model's stricter rows hold."""

import numpy as np
import pytest

from solvers.recompute.graph.opt.layers import Layers, find_layers
from solvers.recompute.graph.opt.planning.slots import Slot, SlotModel
from solvers.recompute.graph.replay import Instance, instance
from tests.solvers.recompute.graph.layered import transformer

DROPPED = frozenset({0, 2, 6})
"""The norm, the scores and the sum of each layer."""


def case(position: float) -> tuple[Instance, Layers, SlotModel]:
    """Four layers; each may keep all, or drop some."""
    given = instance(transformer(layers=4, position=position))
    layers = find_layers(given)
    assert layers is not None
    return given, layers, SlotModel(given, layers, [[frozenset(), DROPPED]] * layers.count)


def test_a_start_without_anything_hidden_keeps_every_row() -> None:
    given, layers, model = case(0.9)
    x, holds = model.start([DROPPED] * layers.count, [])
    assert holds
    assert not model.model.violations(x)
    assert float(model.model.cost @ x) == sum(given.time[layers.op(a, k)] for a in range(layers.count) for k in DROPPED)


@pytest.mark.parametrize("position", [0.2, 0.5, 0.9])
def test_what_breaks_a_row_is_no_longer_hidden_and_nothing_else(position: float) -> None:
    _, layers, model = case(position)
    everything: list[Slot] = sorted(model.slots)  # each op in every window that it may have: far more than fits
    x, holds = model.start([DROPPED] * layers.count, everything)
    bare, bare_holds = model.start([DROPPED] * layers.count, [])
    assert holds == bare_holds
    if holds:
        assert not model.model.violations(x)
        assert float(model.model.cost @ x) < float(model.model.cost @ bare)
    hidden = {slot for slot in everything if x[model.slots[slot]] > 0.5}
    again, _ = model.start([DROPPED] * layers.count, hidden)
    assert np.array_equal(again, x)  # what is left breaks no row, so that it is taken over whole


def test_a_start_beyond_the_budget_says_so() -> None:
    _, layers, model = case(0.2)
    _, holds = model.start([frozenset()] * layers.count, [])
    assert not holds
