"""Near-even splits: every place for the layers left over, the fastest that fits."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import pipeline_us
from solvers.ir import ReplanProblem
from solvers.replan.even_placements import EvenPlacements, near_even, placements_of
from tests.solvers.replan.brute_force import fits
from tests.solvers.replan.clusters import grid
from tests.strategies import replan_problems


@pytest.mark.parametrize(("layers", "depth"), [(4, 1), (5, 3), (7, 4), (8, 4), (6, 6)])
def test_all_splits_that_differ_by_one_layer(layers: int, depth: int) -> None:
    every = {s for s in product(range(1, layers + 1), repeat=depth) if sum(s) == layers and max(s) - min(s) <= 1}
    found = near_even(layers, depth, 1000)
    assert set(found) == every
    assert len(found) == len(every)
    assert list(found[0]) == sorted(found[0], reverse=True)


def test_three_stand_for_too_many() -> None:
    assert near_even(20, 16, 1819) == [(2,) * 4 + (1,) * 12, (1,) * 6 + (2,) * 4 + (1,) * 6, (1,) * 12 + (2,) * 4]
    assert len(near_even(20, 16, 1820)) == 1820


@settings(max_examples=150, deadline=None)
@given(problem=replan_problems(), depth=st.integers(1, 7), microbatches=st.integers(1, 9))
def test_the_best_of_them_by_the_judges_clock(problem: ReplanProblem, depth: int, microbatches: int) -> None:
    best = EvenPlacements(problem, 1000).best(depth, microbatches)
    splits = near_even(problem.layers, depth, 1000) if depth <= problem.layers else []
    times = [pipeline_us(problem, split, microbatches) for split in splits if fits(problem, split, microbatches)]
    assert (best.pipeline_us if best else None) == min(times, default=None)
    if best:
        assert pipeline_us(problem, best.layers, microbatches) == best.pipeline_us


def test_a_model_is_remembered_whatever_has_failed() -> None:
    one, other = grid(2, 2, 5, 4), grid(2, 2, 5, 4, failed=[1], idle=3, restart_us=77)
    assert placements_of(one, 10) is placements_of(other, 10)
    assert placements_of(one, 10) is not placements_of(grid(2, 2, 5, 4, p2p_us=1), 10)
