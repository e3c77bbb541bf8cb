"""Kinds of alike units are assigned as cheaply as the units one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.replan.transfer.transportation import NATIVE, _one_by_one, _Paths, transport

FORBIDDEN = np.inf


def total(cost: np.ndarray, flow: np.ndarray) -> float:
    return float((np.where(flow > 0, cost, 0) * flow).sum())


@st.composite
def markets(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    supply = np.array(draw(st.lists(st.integers(1, 6), min_size=rows, max_size=rows)))
    demand = np.array(draw(st.lists(st.integers(1, 6), min_size=columns, max_size=columns)))
    prices = st.one_of(st.integers(0, 9), st.just(FORBIDDEN))
    cells = draw(st.lists(prices, min_size=rows * columns, max_size=rows * columns))
    return np.array(cells, dtype=np.float64).reshape(rows, columns), supply, demand


@settings(max_examples=300, deadline=None)
@given(markets())
def test_paths_between_kinds_cost_what_scipy_finds_one_by_one(
    market: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    cost, supply, demand = market
    surplus = supply.sum() - demand.sum()
    if surplus < 0:
        assert transport(cost, supply, demand) is None
        return
    cost = np.hstack([cost, np.zeros((len(supply), 1))])
    demand = np.append(demand, surplus)
    ours, scipys = _Paths(cost, supply, demand).solve(), _one_by_one(cost, supply, demand)
    assert (ours is None) == (scipys is None)
    if ours is not None and scipys is not None:
        assert total(cost, ours) == total(cost, scipys)
        assert (ours >= 0).all() and (ours.sum(axis=0) == demand).all() and (ours.sum(axis=1) == supply).all()


@settings(max_examples=300, deadline=None)
@given(markets())
def test_the_native_extension_takes_the_same_paths(market: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    cost, supply, demand = market
    if NATIVE is None or (surplus := int(supply.sum() - demand.sum())) < 0:
        return
    cost, demand = np.hstack([cost, np.zeros((len(supply), 1))]), np.append(demand, surplus)
    ours, natives = _Paths(cost, supply, demand).solve(), NATIVE.transported(cost, supply, demand)
    assert (ours is None) == (natives is None) and (ours is None or (ours == natives).all())


@pytest.mark.parametrize("units", [3, 3000])
def test_surplus_is_left_where_it_is_dear(units: int) -> None:
    flow = transport(np.array([[5.0], [1.0]]), np.array([units, units]), np.array([units]))
    assert flow is not None and flow.tolist() == [[0], [units]]


@pytest.mark.parametrize("units", [3, 3000])
def test_a_demand_that_nobody_may_serve_is_told(units: int) -> None:
    cost = np.array([[FORBIDDEN, 1.0], [FORBIDDEN, 1.0]])
    assert transport(cost, np.array([units, units]), np.array([1, units])) is None


def test_the_inputs_are_not_written_to() -> None:
    supply, demand, cost = np.array([400, 2]), np.array([1, 401]), np.array([[3.0, 1.0], [1.0, 4.0]])
    flow = transport(cost, supply, demand)
    assert flow is not None and flow.tolist() == [[0, 400], [1, 1]]
    assert supply.tolist() == [400, 2] and demand.tolist() == [1, 401]
