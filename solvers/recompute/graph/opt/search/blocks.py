"""Moves of many recomputations at once: what single ones reach only through plans that cost more."""

from bisect import bisect_left, bisect_right

from solvers.recompute.graph.opt.search.moves import Moves

WIDTHS = (2, 3, 4, 6, 8, 12, 16)
"""How many neighbouring ops or stages a move takes."""
BACK = 16
"""Number of latest communications before its stage among which a recomputation may hide."""
KEPT = 0.2
"""How often what makes room behind a communication is kept instead of computed elsewhere."""
TRIALS = 40
"""The most recomputations that are tested for removal."""


def evict_block(moves: Moves, s: int) -> bool:
    """Neighbouring outputs kept across stage s are computed again together, at the first need; False if none is."""
    source, pool = moves.source, moves.pool
    first = int(source.random() * bisect_left(pool, s))
    stage: int | None = None
    for v in reversed(pool[first : first + source.choice(WIDTHS)]):
        gap = moves.gap(v, s) if v < s else None
        if gap is None:
            continue
        after, need = gap
        if stage is None or not after < stage <= need:
            stage = moves.place(v, after, need)
        if stage is None or (moves.allowed(stage, v) and not moves.compute(stage, v)):
            return False
    return stage is not None


def fill(moves: Moves) -> None:
    """Stop computing again what there is room to keep: the longest ops first, more or less."""
    state, source, given = moves.state, moves.source, moves.given
    runs = [(t, v) for t, run in enumerate(state.again) if not given.comm[t] for v in sorted(run)]
    runs.sort(key=lambda run: -given.time[run[1]] * (0.3 + source.random()))
    trials = TRIALS
    for t, v in runs:
        if trials == 0:
            break
        if v in state.again[t] and _has_room(moves, t, v):
            trials -= 1
            mark, cost = state.mark(), state.cost
            state.remove(t, v)
            state.drop_unread()
            if state.cost >= cost or state.levels().max() > given.budget:
                state.undo(mark)


def _has_room(moves: Moves, t: int, v: int) -> bool:
    """Whether op v's output fits on top of every stage from its last use to stage t: necessary for keeping it."""
    state = moves.state
    last = state.until[v][state.start_at(v, t - 1)]
    return last + 1 >= t or int(state.levels()[last + 1 : t].max()) + moves.given.size[v] <= moves.given.budget


def ruin(moves: Moves, t: int, v: int) -> None:
    """Take away the recomputations of stage t, or those near op v, or those in the stages near t."""
    state, source, count = moves.state, moves.source, len(moves.given)
    kind, width = source.random(), source.choice(WIDTHS)
    if kind < 0.4:
        runs = [(t, i) for i in sorted(state.again[t])]
    elif kind < 0.7:
        low = max(0, v - source.randrange(width + 1))
        runs = [(s, i) for i in range(low, min(count, low + width)) for s in state.starts[i][1:]]
    else:
        low = max(0, t - source.randrange(width + 1))
        runs = [(s, i) for s in range(low, min(count, low + width)) for i in sorted(state.again[s])]
    for s, i in runs:
        state.remove(s, i)


def hide(moves: Moves, t: int, v: int) -> bool:
    """Compute op v behind a communication instead of in stage t; what is in its way goes elsewhere."""
    state, source, given = moves.state, moves.source, moves.given
    low, high = bisect_right(moves.windows, state.start_at(v, t - 1)), bisect_right(moves.windows, t - 1)
    low = max(low, high - BACK)
    if low >= high or given.comm[v]:
        return False
    window = moves.windows[source.randrange(low, high)]
    if given.time[v] > given.time[window] or v in given.inputs[window] or not given.may_replay(window, v):
        return False
    state.remove(t, v)
    displaced = []
    while state.spent[window] + given.time[v] > given.time[window]:
        displaced.append(source.choice(sorted(state.again[window])))
        state.remove(window, displaced[-1])
    if not moves.compute(window, v):
        return False
    state.drop_unread()
    return all(_elsewhere(moves, window, u) for u in displaced)


def _elsewhere(moves: Moves, t: int, v: int) -> bool:
    """Compute op v, which stage t no longer computes, in some stage for its next reader, or keep it."""
    state = moves.state
    before, need = state.start_at(v, t), state.next_use(v, t)
    after = max(before, state.last_use(v, before, need))
    if before == t or after == need or need == len(moves.given) or moves.source.random() < KEPT:
        return True
    stage = moves.place(v, after, need)
    return stage is not None and moves.compute(stage, v)
