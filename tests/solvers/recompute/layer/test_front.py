"""The front against trying everything: what is kept, and every look-up."""

import pytest

from solvers.ir import RecomputeLayerProblem
from solvers.recompute.layer import Front, Layer, TooManyStates
from solvers.recompute.layer.answers import plan_bytes, plan_us
from tests.solvers.recompute.layer.brute_force import all_policies, random_problem


def cone(figures: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The coordinates in which a policy is dominated for every number of layers and microbatches at once."""
    time_us, stored, forward, working = figures
    return time_us, stored, stored + forward, stored + forward + working


def coordinates(front: Front) -> list[tuple[int, ...]]:
    assert front.stored_bytes is not None
    assert front.forward_bytes is not None
    rows = zip(front.time_us, front.stored_bytes, front.forward_bytes, front.working_bytes, strict=True)
    return [tuple(map(int, row)) for row in rows]


@pytest.mark.parametrize("seed", range(60))
def test_the_front_is_exactly_what_nothing_dominates(seed: int) -> None:
    problem = random_problem(seed, max_ops=5, max_windows=3)
    every = {cone(policy) for policy in all_policies(problem)}
    best = {
        one
        for one in every
        if not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in every)
    }
    found = [cone(figures) for figures in coordinates(Front.of(Layer.of(problem)))]  # type: ignore[arg-type]
    assert sorted(found) == sorted(best)


@pytest.mark.parametrize("seed", range(30))
def test_every_policy_does_what_its_figures_say(seed: int) -> None:
    problem = random_problem(seed, max_ops=5, max_windows=3)
    for inflight in (None, problem.inflight_microbatches):
        front = Front.of(Layer.of(problem), inflight)
        for number in range(len(front)):
            group = front.policy(number).group(problem.layers)
            assert plan_us(problem, [group]) == problem.layers * front.time_us[number]
            fixed = problem.static_bytes + problem.inflight_microbatches * problem.layers * problem.layer_input_bytes
            needed = problem.layers * front.share(problem.inflight_microbatches)[number] + front.working_bytes[number]
            assert plan_bytes(problem, [group]) == fixed + needed


def test_one_front_serves_every_stage() -> None:
    """Each look-up equals the front made for that number in flight, and trying everything."""
    for seed in range(20):
        problem = random_problem(seed)
        front = Front.of(Layer.of(problem))
        for inflight in (1, 2, 5):
            single = Front.of(Layer.of(problem), inflight)
            for layers in (1, 3, 10):
                for room in range(0, 60 * layers, 7 * layers):
                    every = [t for t, s, f, w in all_policies(problem) if layers * (inflight * s + f) + w <= room]
                    for lookup in (front.best(layers, inflight, room), single.best(layers, inflight, room)):
                        assert (None if lookup is None else lookup.time_us) == min(every, default=None)


def test_an_enumeration_can_be_refused_and_stopped() -> None:
    layer = Layer.of(random_problem(3, max_ops=5))
    with pytest.raises(TooManyStates):
        Front.of(layer, max_states=1)
    with pytest.raises(TooManyStates):
        Front.of(layer, stop=lambda: True)


def test_a_front_for_one_number_in_flight_refuses_another() -> None:
    problem: RecomputeLayerProblem = random_problem(1)
    with pytest.raises(ValueError, match="serves 2 microbatches in flight, not 3"):
        Front.of(Layer.of(problem), 2).best(1, 3, 100)
