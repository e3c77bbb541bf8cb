"""A state's questions against looking at every stage, and going back to a mark."""

import random

import pytest

from solvers.recompute.graph.instances import random_layered
from solvers.recompute.graph.opt.search.state import State
from solvers.recompute.graph.replay import instance, replay


def random_state(seed: int) -> State:
    source = random.Random(seed)
    given = instance(random_layered(source.randint(6, 24), seed=seed, comm=0.2))
    return State(given, [{i for i in range(t) if source.random() < 0.1} for t in range(len(given))])


@pytest.mark.parametrize("seed", range(20))
def test_questions_are_answered_as_by_looking_at_every_stage(seed: int) -> None:
    state = random_state(seed)
    count = len(state.given)
    computed = [{t, *state.again[t]} for t in range(count)]
    for v in range(count):
        reads = [t for t in range(count) if any(v in state.given.inputs[u] for u in computed[t])]
        runs = [t for t in range(count) if v in computed[t]]
        for low in range(count):
            assert state.next_use(v, low) == min((t for t in reads if t >= low), default=count)
            if low >= v:
                assert state.start_at(v, low) == max(t for t in runs if t <= low)
            for high in (low, low + 1, low + 3, count):
                assert state.last_use(v, low, high) == max((t for t in reads if low <= t < high), default=-1)


@pytest.mark.parametrize("seed", range(20))
def test_a_mark_is_come_back_to_with_what_was_done_before_it(seed: int) -> None:
    state, source = random_state(seed), random.Random(seed)
    count = len(state.given)

    def change() -> None:
        t = source.randrange(1, count)
        v = source.randrange(t)
        (state.remove if v in state.again[t] else state.add)(t, v)

    first = (state.recomputed(), state.cost, list(state.spent))
    change()
    mark = state.mark()
    second, levels = (state.recomputed(), state.cost, list(state.spent)), state.levels().tolist()
    for _ in range(3):
        change()
    state.undo(mark)
    assert (state.recomputed(), state.cost, state.spent) == second
    assert state.levels().tolist() == levels == replay(state.given, state.again).peaks
    state.undo()
    assert (state.recomputed(), state.cost, state.spent) == first


def test_time_is_paid_on_the_critical_path_and_spent_behind_communication() -> None:
    state = random_state(3)
    given = state.given
    paid = sum(given.time[v] for t, run in enumerate(state.again) if not given.comm[t] for v in run)
    hidden = [sum(given.time[v] for v in run) if given.comm[t] else 0 for t, run in enumerate(state.again)]
    assert (state.cost, state.spent) == (paid, hidden)
    assert paid > 0 and sum(hidden) > 0
