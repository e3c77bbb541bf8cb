"""Single moves on a chain small enough to say what each may do."""

import random
from dataclasses import replace

import pytest

from solvers.recompute.graph.instances import random_layered
from solvers.recompute.graph.opt.search.blocks import ruin
from solvers.recompute.graph.opt.search.moves import Moves
from solvers.recompute.graph.opt.search.state import State
from solvers.recompute.graph.replay import Instance, instance, replay
from tests.solvers.recompute.graph.opt.search.test_evict import chain

CHAIN = instance(chain(100))
"""Ops 0 … 3 of 4 bytes and 1, 2, 3, 4 us, each reading the one before; op 4 (5 us) reads ops 3 and 0."""


def moves(given: Instance = CHAIN, again: dict[int, set[int]] | None = None, seed: int = 0) -> Moves:
    return Moves(State(given, [(again or {}).get(t, set()) for t in range(len(given))]), random.Random(seed))


def test_a_gap_is_where_an_output_only_waits() -> None:
    """Op 0 is read in stage 1, then waits for stage 4; in stages 2 and 3 there is a gap, in 1 and 4 it is used."""
    found = moves()
    assert [found.gap(0, s) for s in range(5)] == [None, None, (1, 4), (1, 4), None]
    assert found.gap(1, 3) is None  # nobody keeps it there
    again = moves(again={3: {0}})
    assert [again.gap(0, s) for s in (2, 3)] == [None, None]
    assert moves(again={2: {0}}).gap(0, 3) == (2, 4)


def test_what_a_stage_may_compute_again() -> None:
    """Stage 3 communicates for 4 us and reads op 2: ops 0 (1 us) and 1 (2) may hide there, op 2 may not."""
    comm = replace(CHAIN, comm=[False, False, False, True, False])
    found = moves(comm)
    assert [found.allowed(3, v) for v in range(5)] == [True, True, False, False, False]
    assert [found.allowed(4, v) for v in range(5)] == [True, True, True, True, False]
    assert not moves(comm, {3: {0}}).allowed(3, 0)  # it does already
    assert [moves(comm, {3: {1}}).allowed(3, v) for v in (0, 2)] == [True, False]
    full = replace(comm, time=[3, 2, 3, 4, 5])
    assert not moves(full, {3: {1}}).allowed(3, 0)  # 2 + 3 us of 4
    assert moves(replace(full, time=[2, 2, 3, 4, 5]), {3: {1}}).allowed(3, 0)
    assert not moves(replace(comm, comm=[True, False, False, True, False])).allowed(3, 0)


def test_having_it_again_costs_what_is_not_kept_until_then_too() -> None:
    """In stage 4 op 2 (3 us) needs op 1 (2 us), which is gone; in stage 3 op 1 needs op 0, which is kept."""
    found = moves()
    assert found._again(2, 4) == 1 + 3 + 2
    assert found._again(1, 3) == 1 + 2


@pytest.mark.parametrize("seed", range(30))
def test_a_place_lies_behind_the_last_use_and_not_behind_the_need(seed: int) -> None:
    given = instance(random_layered(30, seed=seed, comm=0.3))
    found = moves(given, seed=seed)
    for v in range(0, 20, 3):
        after, need = v, min(len(given) - 1, v + 1 + seed % 9)
        stage = found.place(v, after, need)
        assert stage is None or after < stage <= need


@pytest.mark.parametrize("seed", range(30))
def test_moves_leave_plans_that_replay_measures_alike(seed: int) -> None:
    """Data is always there; only memory may be short, and repair says whether it is."""
    given = instance(random_layered(40, seed=seed, comm=0.2, position=0.8))
    found = moves(given, seed=seed)
    for stage in range(5, 40, 5):
        found.evict(stage)
    fits = found.repair(30)
    measured = replay(given, found.state.again)
    assert found.state.levels().tolist() == measured.peaks
    assert fits == (max(measured.peaks) <= given.budget) or not fits
    assert found.state.cost == measured.objective_us - given.base
    if fits:
        assert measured.violation is None
        assert not found.repair(0, dearest=found.state.cost - 1)
        assert found.repair(0, dearest=found.state.cost)


@pytest.mark.parametrize("seed", range(20))
def test_ruin_only_takes_away(seed: int) -> None:
    given = instance(random_layered(30, seed=seed, comm=0.2))
    source = random.Random(seed)
    before = [{i for i in range(t) if source.random() < 0.1} for t in range(len(given))]
    found = moves(given, dict(enumerate(before)), seed)
    ruin(found, 20, 7)
    after = found.state.recomputed()
    assert all(left <= had for left, had in zip(after, before, strict=True))
    assert found.state.levels().tolist() == replay(given, after).peaks
