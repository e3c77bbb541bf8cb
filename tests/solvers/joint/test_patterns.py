"""Changes of many decisions: the state stays what it says it is, is given back whole, and like outputs fare alike."""

import random
from collections import Counter

import pytest

from experiments.joint.cases import Case
from solvers.joint.given import Given, given_of
from solvers.joint.greedy import greedy
from solvers.joint.moves import Moves
from solvers.joint.patterns import Patterns
from solvers.joint.state import State
from tests.solvers.joint.layered import layered
from tests.solvers.joint.test_state import holds


def _patterns(given: Given, seed: int) -> Patterns:
    source, choice = random.Random(seed), greedy(given)
    assert choice is not None
    return Patterns(Moves(State(given, choice), source), source)


def _decisions(state: State) -> tuple[list[set[int]], dict[tuple[int, int], int]]:
    return [set(run) for run in state.again], dict(state.away)


@pytest.mark.parametrize("tensor", [1, 8])
def test_what_failed_is_given_back_and_what_holds_is_told_right(tensor: int) -> None:
    given = given_of(layered(0.05) if tensor == 1 else Case("llama-3-8b", "a100-sxm-80", 0.02, 8).problem())
    patterns, done, most = _patterns(given, tensor), Counter[bool](), 0
    for number in range(60):
        before = _decisions(patterns.state)
        patterns.state.begin()
        ended = patterns.any()
        done[ended] += 1
        most = max(most, len(patterns.state.journal) + len(patterns.state.seen))
        if ended and number % 2:
            patterns.moves.refresh()
        else:
            patterns.state.undo()
            assert _decisions(patterns.state) == before
        if number % 10 == 0:
            holds(given, patterns.state)
    assert done[True] > 10 and done[False] > 5 and most > 5


def test_room_is_made_for_what_is_computed_again() -> None:
    given, stayed = given_of(layered(0.05)), 0
    for seed in range(8):
        patterns = _patterns(given, seed)
        state = patterns.state
        t, i = random.Random(seed).choice(patterns.moves.runs)
        gone = set(state.away)
        if patterns._stay(t, i):
            assert i not in state.again[t] and gone <= {*state.away} | {(i, a) for a in state.touched[i]}
            assert int((state.held + state.local).max()) <= given.budget - state.static
            stayed += len(state.away) > len(gone)
    assert stayed > 0


def test_an_output_is_treated_like_another() -> None:
    given = given_of(layered(0.05))
    patterns = _patterns(given, 1)
    state, moves, seen = patterns.state, patterns.moves, Counter[str]()
    for (i, a), b in [*state.away.items()]:
        others = [j for j in moves.alike[i] if j > i and len(given.graph.users[j]) == len(given.graph.users[i])]
        if b in given.graph.users[i] and others and (i, a) in state.away:
            reader = given.graph.users[others[0]][given.graph.users[i].index(b)]
            imitated = patterns._imitate(i, a, b, others[0])
            assert not imitated or any(j == others[0] and end == reader for (j, _), end in state.away.items())
            seen["leaves"] += imitated
    patterns = _patterns(given, 2)
    state, moves = patterns.state, patterns.moves
    for t, i in [*moves.runs]:
        others = [j for j in moves.alike[i] if j != i and len(given.graph.users[j]) == len(given.graph.users[i])]
        if i in state.again[t] and others:
            a = moves.before(i, t)
            place = next((n for n, user in enumerate(given.graph.users[i]) if user >= t), None)
            if place is not None and patterns._imitate(i, a, t, others[0]):
                at = given.graph.users[others[0]][place] - (given.graph.users[i][place] - t)
                assert others[0] in state.again[at]
                seen["again"] += 1
    holds(given, state)
    assert seen["leaves"] + seen["again"] > 0, seen
