"""Which recomputations model M holds, told on one small graph and against walks of others."""

from dataclasses import replace

import pytest

from solvers.recompute.graph.checkmate import can_hide
from solvers.recompute.graph.replay import instance
from solvers.recompute.graph.stages import column_count, hideable, latest_dependants, recomputable, stage_model
from tests.solvers.check.recompute_graph.test_judge import COMM, STORY
from tests.solvers.recompute.graph.brute_force import general

GIVEN = instance(COMM)
"""Ops 0 (4 us), 1 (3 us, reads 0), 2 (a communication of 4 us, reads 1) and 3 (6 us, reads 0 and 2)."""


def test_the_latest_op_that_depends_on_another() -> None:
    assert latest_dependants(GIVEN) == [3, 3, 3, 3]
    alone = replace(GIVEN, inputs=[(), (0,), (), (2,)], users=[(1,), (), (3,), ()])
    assert latest_dependants(alone) == [1, 1, 3, 3]


@pytest.mark.parametrize("seed", range(1, 40, 2))
def test_dependants_are_those_that_a_walk_reaches(seed: int) -> None:
    given = instance(general(seed))
    for i, last in enumerate(latest_dependants(given)):
        reached, waiting = {i}, [i]
        while waiting:
            for u in given.users[waiting.pop()]:
                if u not in reached:
                    reached.add(u)
                    waiting.append(u)
        assert last == max(reached)


def test_what_a_communication_may_hide() -> None:
    """Op 0 takes as long as the communication; op 1 is its input, which must be there before it begins."""
    assert [hideable(GIVEN, 2, i) for i in (0, 1)] == [True, False]
    assert not hideable(replace(GIVEN, time=[5, 3, 4, 6]), 2, 0)
    assert not hideable(replace(GIVEN, comm=[True, False, True, False]), 2, 0)
    assert [recomputable(GIVEN, 2, i) for i in (0, 1)] == [True, False]
    assert [recomputable(GIVEN, 3, i) for i in (0, 1, 2)] == [True] * 3


def test_hiding_is_of_use_only_for_bytes_that_are_still_needed() -> None:
    assert can_hide(GIVEN)
    assert not can_hide(instance(STORY))  # no communication
    assert not can_hide(replace(GIVEN, size=[0, 3, 1, 2]))  # nothing is gained by dropping no bytes
    assert not can_hide(replace(GIVEN, inputs=[(), (0,), (1,), (2,)], users=[(1,), (2,), (3,), ()], time=[5, 3, 4, 6]))


def test_columns_are_counted_without_building_them() -> None:
    """For each op and each stage until its last dependant twice 2 + its inputs: 2·3·2, 3·2·2, 3·1·2 and none."""
    assert column_count(GIVEN) == 12 + 12 + 6
    for seed in range(1, 20, 2):
        given = instance(general(seed))
        assert stage_model(given).model.columns <= 2 * column_count(given)


def test_what_is_not_allowed_has_no_column_and_no_start() -> None:
    """A plan that recomputes op 0 in stage 2 is a point of the whole model, and of none without that stage."""
    runs = [{0: 1}, {1: 2}, {0: 3, 2: 3}, {3: 3}]
    whole, part = stage_model(GIVEN), stage_model(GIVEN, lambda t, i: not GIVEN.comm[t])
    assert (2, 0) in whole.computed and (2, 0) not in part.computed
    assert (2, 1) not in whole.computed
    assert part.start(GIVEN, runs) is None
    x = whole.start(GIVEN, runs)
    assert x is not None
    assert whole.recomputed(x, 4) == [set(), set(), {0}, set()]
    assert whole.model.violations(x) == ()
