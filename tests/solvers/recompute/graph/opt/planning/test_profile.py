"""What layers hold with their patterns, computed beforehand, is what replay measures."""

import pytest
from msgspec.structs import replace

from solvers.recompute.graph.opt.bound.patterns import Pattern, Prices, all_patterns, leanest
from solvers.recompute.graph.opt.layers import Layers, find_layers
from solvers.recompute.graph.opt.planning.profile import Profile, ProfiledLayer
from solvers.recompute.graph.opt.planning.slots import _rest_bytes
from solvers.recompute.graph.replay import Instance, instance, replay
from tests.solvers.recompute.graph.layered import transformer


def profiled(given: Instance, layers: Layers, patterns: list[Pattern]) -> list[Profile]:
    """Every layer's profile, each computed again before the next layer's backward pass begins below it."""
    views = [ProfiledLayer(given, layers, layer) for layer in range(layers.count)]
    starts = [view.start for view in views]
    following = [*starts[1:], layers.end]
    return [view.profile(pattern, start) for view, pattern, start in zip(views, patterns, following, strict=True)]


@pytest.mark.parametrize("byte", [0.02, 0.1, 0.3, 0.8])
def test_the_sum_of_profiles_is_never_below_the_replay_and_mostly_equal(byte: float) -> None:
    problem = replace(transformer(layers=3, position=0.5), budget_bytes=10**9)
    given = instance(problem)
    layers = find_layers(given)
    assert layers is not None
    view = ProfiledLayer(given, layers, 1)
    rest, equal = _rest_bytes(given, layers), 0
    choices = [*all_patterns(view, Prices(byte, {}), 12), frozenset(), leanest(view)]
    for number in range(len(choices)):
        patterns = [choices[(number + layer) % len(choices)] for layer in range(3)]
        profiles = profiled(given, layers, patterns)
        again: list[set[int]] = [set() for _ in range(len(given))]
        for layer, profile in enumerate(profiles):
            for k, stage in profile.again.items():
                again[stage].add(layers.op(layer, k))
        measured = replay(given, again)
        assert measured.violation is None
        cost = sum(profile.cost_us for profile in profiles)
        assert measured.objective_us == given.base + cost
        for t in range(layers.end, len(given)):
            held = sum(p.kept_bytes if t < p.first else p.held.get(t, 0) for p in profiles)
            assert rest[t] + held + given.static >= measured.peaks[t]
            equal += rest[t] + held + given.static == measured.peaks[t]
    assert equal >= 0.9 * len(choices) * (len(given) - layers.end)
