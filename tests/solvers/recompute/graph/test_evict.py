"""First plans: always valid, seldom far from the best, there for a thousand ops in seconds."""

from solvers.recompute.graph.answers import windows_of
from solvers.recompute.graph.evict import evictions
from solvers.recompute.graph.instances import random_layered
from solvers.recompute.graph.polish import polish
from solvers.recompute.graph.replay import instance, replay
from tests.solvers.recompute.graph.brute_force import optimum, random_problem


def never() -> bool:
    return False


def test_first_plans_are_valid_polish_never_worsens_them_and_most_are_optimal() -> None:
    feasible = found = best_found = 0
    for seed in range(120):
        problem = random_problem(seed)
        best, given = optimum(problem), instance(problem)
        objectives = []
        for recomputed in evictions(given, never):
            first = replay(given, recomputed)
            polished = replay(given, polish(given, recomputed, windows_of(given), never))
            assert first.violation is None and polished.violation is None
            assert best is not None and best <= polished.objective_us <= first.objective_us
            objectives.append(polished.objective_us)
        feasible += best is not None
        found += bool(objectives)
        best_found += bool(objectives) and min(objectives) == best
    assert found >= 0.9 * feasible
    assert best_found >= 0.8 * feasible


def test_polishing_without_windows_hides_nothing() -> None:
    for seed in range(40):
        given = instance(random_problem(seed))
        for recomputed in evictions(given, never):
            again = polish(given, recomputed, (), never)
            assert [t for t in windows_of(given) if again[t]] == []


def test_a_thousand_ops_have_a_plan_in_seconds_and_stop_when_told() -> None:
    given = instance(random_layered(1000, width=6))
    recomputed = next(evictions(given, never))
    assert replay(given, recomputed).violation is None
    assert list(evictions(given, lambda: True)) == []
    assert polish(given, recomputed, windows_of(given), lambda: True) == recomputed
