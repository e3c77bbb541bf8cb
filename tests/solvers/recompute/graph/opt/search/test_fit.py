"""From a plan above the budget to one within it: what is too much, counted, and whether it goes."""

import random
from dataclasses import replace

import pytest

from solvers.recompute.graph.instances import random_layered, unet
from solvers.recompute.graph.opt.search.fit import anneal_excess, evict_all, excess
from solvers.recompute.graph.opt.search.state import State
from solvers.recompute.graph.replay import Instance, instance, replay
from tests.solvers.recompute.graph.opt.search.test_evict import chain


def keeping(given: Instance) -> State:
    return State(given, [()] * len(given))


@pytest.mark.parametrize(("budget", "above"), [(12, 0), (11, 3), (10, 6), (8, 12)])
def test_the_excess_is_the_sum_over_stages(budget: int, above: int) -> None:
    """Five outputs of 4 bytes, op 0 kept to the end: 4, 8, 12, 12 and 12 bytes."""
    assert keeping(instance(chain(12))).levels().tolist() == [4, 8, 12, 12, 12]
    assert excess(keeping(instance(chain(budget)))) == above


@pytest.mark.parametrize("compared", [6, 30])
def test_eviction_says_whether_all_fits(compared: int) -> None:
    fitted = 0
    for seed in range(8):
        given = instance(random_layered(40, seed=seed, comm=0.1, position=0.7))
        state = keeping(given)
        fits = evict_all(state, random.Random(seed), compared, lambda: False)
        found = replay(given, state.recomputed())
        assert fits == (max(found.peaks) <= given.budget) == (excess(state) == 0)
        assert state.levels().tolist() == found.peaks
        assert excess(state) <= excess(keeping(given))
        fitted += fits
    assert fitted >= 4


def test_nothing_is_evicted_where_all_fits_or_when_told_to_stop() -> None:
    ample = keeping(instance(unet(position=1.0)))
    assert evict_all(ample, random.Random(0), 6, lambda: False)
    assert not any(ample.again)
    tight = keeping(instance(unet(position=0.3)))
    assert not evict_all(tight, random.Random(0), 6, lambda: True)
    assert not any(tight.again)


def test_annealing_the_excess_is_told_apart_from_failing() -> None:
    """A chain whose last op needs 12 bytes: 11 are too few for any plan, 12 need none; 14 for wide ones are enough."""
    short = keeping(instance(chain(11)))
    assert not anneal_excess(short, random.Random(0), 200, lambda: False)
    assert anneal_excess(keeping(instance(chain(12))), random.Random(0), 0, lambda: False)
    given = replace(instance(chain(14)), size=[4, 4, 8, 4, 4])
    wide = keeping(given)
    assert excess(wide) == 4  # op 2's stage: 4 + 4 + 8; op 3's: 4 + 8 + 4
    assert anneal_excess(wide, random.Random(0), 400, lambda: False)
    assert max(replay(given, wide.recomputed()).peaks) <= 14
    assert not anneal_excess(keeping(given), random.Random(0), 17, lambda: True)  # asked before the first move
