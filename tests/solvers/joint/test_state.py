"""A state that changes in place holds what looking at all stages finds, after any changes, and takes them all back."""

import random

import numpy as np
import pytest

from solvers.joint.choice import Choice, Shadow, keep_all, levels, spans
from solvers.joint.draft import kept_of
from solvers.joint.given import Given, given_of
from solvers.joint.greedy import greedy
from solvers.joint.state import State
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.layered import layered


def holds(given: Given, state: State) -> None:
    """Memory, times, gaps and readers are those of the recursion over all stages."""
    choice = Choice([set(run) for run in state.again], set(state.away), dict(state.waits))
    kept = kept_of(given, choice.again)
    gaps = spans(kept, choice.away)
    assert {(i, a): b for i, a, b in gaps} == state.away
    assert sorted((i, a, b) for b, ends in enumerate(state.returns) for a, i in ends) == sorted(gaps)
    assert [sorted(ops) for ops in state.leaves] == state.leaves
    left = {(i, a): s for s, gone in enumerate(state.leaves) for a, i in gone}
    assert left == {(i, a): state.behind(i, a) for i, a in state.away} and set(state.waits) <= set(state.away)
    assert all(a < s < state.away[i, a] - 1 for (i, a), s in state.waits.items())
    gaps = [(i, left[i, a], b) for i, a, b in gaps]  # memory is free from the stage on behind which it leaves
    assert np.array_equal(levels(given, kept, gaps), state.static + state.held + state.local)
    assert (kept.ticks, kept.touched, sum(kept.ticks)) == (state.ticks, state.touched, state.total)
    shadow = state.shadow
    leaving = sum(shadow.leaves[i] for (i, a), b in state.away.items() if a < shadow.stage <= b)
    assert state.owed == leaving + int(shadow.stays * float(state.held[shadow.stage]))


def change(given: Given, state: State, source: random.Random) -> None:
    """One decision, right or wrong."""
    t = source.randrange(1, len(given))
    i = source.randrange(t)
    if source.random() < 0.5:
        (state.take if i in state.again[t] else state.put)(t, i)
        return
    a = source.choice(state.touched[i])
    if (i, a) in state.away:
        state.keep(i, a)
    else:
        state.send(i, a, source.choice((None, a, a + source.randrange(len(given)))))


@pytest.mark.parametrize("seed", range(40))
def test_random_changes_of_random_problems(seed: int) -> None:
    source = random.Random(f"state {seed}")
    given = given_of(random_problem(seed))
    shadow = Shadow(source.randrange(len(given)), [source.randrange(9) for _ in range(len(given))], source.random())
    state = State(given, keep_all(given), shadow)
    for _ in range(12):
        holds(given, state)
        before = [set(run) for run in state.again], dict(state.away), dict(state.waits)
        state.begin()
        for _ in range(source.randrange(1, 5)):
            change(given, state, source)
        if source.random() < 0.7:  # otherwise nobody asks what is in use before it is taken back
            holds(given, state)
        if source.random() < 0.5:
            state.undo()
            assert (state.again, state.away, state.waits) == before


def test_from_a_choice_of_layers() -> None:
    given = given_of(layered(0.1))
    choice = greedy(given)
    assert choice is not None and choice.away
    state = State(given, choice)
    holds(given, state)
    source = random.Random(1)
    for _ in range(30):
        change(given, state, source)
    holds(given, state)
