"""The quick pass takes exactly as long as the draft that it tells, and no longer than asked."""

import random

import pytest
from msgspec.structs import replace

from solvers.joint.choice import swap_all
from solvers.joint.draft import measure
from solvers.joint.given import given_of
from solvers.joint.greedy import greedy
from solvers.joint.lanes import FAULT, LUCK, Lanes
from solvers.joint.state import State
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.layered import layered
from tests.solvers.joint.test_state import change


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("host_bytes", [None, 6])
def test_as_long_as_the_measured_draft(shared: bool, host_bytes: int | None) -> None:
    measured = faults = 0
    for seed in range(120):
        source = random.Random(f"lanes {seed}")
        problem = replace(random_problem(seed), comm_shares_link=shared, host_budget_bytes=host_bytes)
        given = given_of(problem)
        state = State(given, swap_all(given))
        for _ in range(source.randrange(5)):
            change(given, state, source)
        lanes = Lanes(state)
        for _ in range(2):
            ticks = lanes.ticks()
            if ticks == FAULT:
                faults += 1
                break
            found = measure(given, lanes.draft())
            assert found.violation is None or "computes" in found.violation  # that ops may run again, moves look after
            if found.violation is None:
                assert (found.objective_us, found.start) == (given.whole_us(ticks), lanes.times), seed
                measured += 1
            assert lanes.ticks(ticks) == ticks and lanes.ticks(ticks - 1) == FAULT
            lanes.kept()
    assert measured > 50 and faults > 5


def test_layers_come_back_in_time() -> None:
    given = given_of(layered(0.15, hardware="rtx-3090"))
    choice = greedy(given)
    assert choice is not None
    lanes = Lanes(State(given, choice))
    first = lanes.ticks()
    lanes.kept()
    again = lanes.ticks()
    found = measure(given, lanes.draft())
    assert found.violation is None and found.objective_us == given.whole_us(again)
    assert again < FAULT and first < FAULT and any(away.in_at < stage for away, stage in _readers(lanes))


def test_a_first_look_changes_nothing() -> None:
    given, source, refused, kept = given_of(layered(0.1, hardware="rtx-3090")), random.Random(3), 0, 0
    choice = greedy(given)
    assert choice is not None
    lanes = Lanes(State(given, choice))
    lanes.ticks()
    lanes.kept()
    for _ in range(60):
        lanes.state.begin()
        change(given, lanes.state, source)
        plain = Lanes(lanes.state)  # it knows no stage up to which nothing comes back
        plain.start = lanes.start
        took, least = plain.ticks(), lanes.state.total
        for limit in (least, least + (took - least) // 4, took - 1, took):
            lanes.luck = 0
            assert lanes.ticks(limit) == (took if limit >= took else FAULT)
            refused += lanes.luck > 0
        if took < FAULT and source.random() < 0.3:
            assert (lanes.times, lanes.issued) == (plain.times, plain.issued)
            lanes.kept()
            assert lanes.luck <= LUCK and lanes.quiet in lanes.issued
            kept += 1
        else:
            lanes.state.undo()
    assert refused > 5 and kept > 5


def _readers(lanes: Lanes):  # type: ignore[no-untyped-def]
    """Each entry with the stage that reads it."""
    left = {(i, s): (i, a) for s, gone in enumerate(lanes.state.leaves) for a, i in gone}
    return [(away, lanes.state.away[left[away.op, away.out_after]]) for away in lanes.draft().away]
