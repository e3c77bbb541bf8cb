"""From a plan above the budget to one within it: evict where memory is short, then anneal what is too much."""

import math
import random
from collections.abc import Callable

import numpy as np

from solvers.recompute.graph.opt.search.moves import Moves
from solvers.recompute.graph.opt.search.state import State

COMPARED = (6, 30, 12, 30)
"""Outputs that compete for each eviction in greedy constructions."""
LOOK = 16
"""Moves between two checks whether to stop."""
FAILURES, MOST = 12, 2
"""Failures in a row, and evictions per op, after which evicting ends."""
HEAT = 1.0
"""The first temperature of the annealing, in mean sizes of an output."""
STEPS = (-20, -8, -5, -3, -2, -1, 0, 0, 0, 0, 0, 1, 2, 3, 5, 8, 20)
"""How far from a stage without room a recomputation is dropped or shifted."""

Clock = Callable[[], bool]
"""Whether to stop now."""


def excess(state: State) -> int:
    """The bytes above the budget, summed over the stages."""
    above = state.levels() - state.given.budget
    return int(above[above > 0].sum())


def evict_all(state: State, source: random.Random, compared: int, stop: Clock) -> bool:
    """Evict in the fullest stage until all fit or little helps; answers whether they fit."""
    moves, failures, current = Moves(state, source, compared), 0, excess(state)
    for _ in range(MOST * len(state.given)):
        if current == 0 or failures == FAILURES or stop():
            break
        state.commit()
        levels = state.levels()
        above = np.flatnonzero(levels > state.given.budget)
        stage = int(levels.argmax()) if failures < FAILURES // 2 else int(source.choice(above))
        if moves.evict(stage):
            state.drop_unread()
            now = excess(state)
            if now < current:
                current, failures = now, 0
                continue
        state.undo()
        failures += 1
    state.commit()
    return current == 0


def anneal_excess(state: State, source: random.Random, count: int, stop: Clock) -> bool:
    """Simulated annealing on the excess for a number of moves, whatever it costs; answers whether all stages fit."""
    moves, current = Moves(state, source, compared=3), excess(state)
    hottest = HEAT * sum(state.given.size) / len(state.given)
    for left in reversed(range(count)):
        if current == 0 or (left % LOOK == 0 and stop()):
            break
        above = np.flatnonzero(state.levels() > state.given.budget)
        state.commit()
        if _random_move(moves, int(source.choice(above)), source):
            state.drop_unread()
            now = excess(state)
            temperature = hottest * (left / count) ** 2
            if now <= current or source.random() < math.exp((current - now) / (temperature + 1e-9)):
                current = now
                continue
        state.undo()
    state.commit()
    return current == 0


def _random_move(moves: Moves, stage: int, source: random.Random) -> bool:
    """Evict in the stage, or drop or shift a recomputation near it; False where it is not possible."""
    state = moves.state
    if source.random() < 0.5:
        return moves.evict(stage)
    t = min(len(state.given) - 1, max(0, stage + source.choice(STEPS)))
    if not state.again[t]:
        return False
    v = source.choice(sorted(state.again[t]))
    if source.random() < 0.5:
        state.remove(t, v)
        return True
    return moves.shift(t, v)
