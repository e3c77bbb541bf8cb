"""Annealing: only better drafts are told, all of them valid, the same ones from the same seed; it stops when told."""

import random

import pytest
from msgspec.structs import replace

from experiments.joint.cases import Case
from solvers.ir import JointProblem, Limits
from solvers.joint import Joint, anneal
from solvers.joint.anneal import NATIVE, Annealing, Native, annealing_of
from solvers.joint.choice import Shadow, swap_all
from solvers.joint.draft import draft_of, measure, plan_of
from solvers.joint.given import Given, given_of
from solvers.joint.greedy import greedy
from solvers.joint.instances import at_position
from solvers.joint.lanes import FAULT
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.layered import layered


def _told(problem: JointProblem, steps: int, seed: int = 1, is_greedy: bool = True) -> list[int]:
    """The objectives of the drafts told, each measured, from the greedy's or that of everything swapped on."""
    given = given_of(problem)
    annealing = Annealing(given, (greedy(given) if is_greedy else None) or swap_all(given), random.Random(seed))
    objectives = [given.whole_us(annealing.now)]
    for draft in annealing.drafts(steps, 0.001 * sum(given.time), lambda: False):
        found = measure(given, draft)
        assert found.violation is None
        objectives.append(found.objective_us)
        assert draft_of(given, plan_of(given, draft)).away == draft.away
    assert objectives[-1] == given.whole_us(annealing.best)
    return objectives


def test_layers_end_sooner_from_step_to_step() -> None:
    told = _told(layered(0.02), 600)
    assert told == sorted(told, reverse=True) and told[-1] < told[0]
    assert told == _told(layered(0.02), 600) and told != _told(layered(0.02), 600, seed=2)


def test_communication_hides_what_runs_again() -> None:
    problem = Case("llama-3-8b", "a100-sxm-80", 0.02, 8).problem()
    told = _told(problem, 400)
    assert told[-1] < told[0]


@pytest.mark.parametrize("shared", [False, True])
def test_random_problems_stay_valid(shared: bool) -> None:
    better = 0
    for seed in range(60):
        problem = random_problem(seed)
        problem = replace(at_position(problem, 0.3), comm_shares_link=shared)
        given = given_of(problem)
        if Annealing(given, swap_all(given), random.Random(seed)).now < FAULT:
            told = _told(problem, 200, seed, is_greedy=False)
            better += told[-1] < told[0]
    assert better > 10


def test_what_it_owes_is_not_what_it_takes() -> None:
    given, seen = given_of(layered(0.02)), 0
    for seed in range(8):
        annealing = Annealing(given, swap_all(given), random.Random(seed), 0.15, _shadow(given, seed))
        for draft in annealing.drafts(300, 0.003 * sum(given.time), lambda: False):
            assert measure(given, draft).objective_us == given.whole_us(annealing.best)
            assert draft == annealing.draft
            seen += annealing.now > annealing.best
    assert seen > 3


def test_it_stops_when_told() -> None:
    given = given_of(layered(0.1))
    annealing = Annealing(given, swap_all(given), random.Random(1))
    assert list(annealing.drafts(10**9, 1.0, lambda: True)) == []


def _problems(shared: bool, host_bytes: int | None) -> list[JointProblem]:
    """Random ones near their least budgets, and layers under more than one of theirs."""
    found = [at_position(random_problem(seed), 0.3) for seed in range(75)]
    found += [layered(share, hardware="rtx-3090") for share in (0.02, 0.3) if host_bytes is None]
    return [replace(one, comm_shares_link=shared, host_budget_bytes=host_bytes) for one in found]


def _shadow(given: Given, seed: int) -> Shadow:
    """Random ticks for what leaves and for what stays at a random stage."""
    source = random.Random(seed)
    leaves = [source.randint(0, 1 + ticks) for ticks in given.out_time]
    return Shadow(source.randrange(1, len(given)), leaves, source.random() * max(leaves) / (1 + max(given.graph.size)))


@pytest.mark.skipif(NATIVE is None, reason="built without the native extension")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("host_bytes", [None, 8])
def test_the_extension_goes_the_same_way_step_for_step(shared: bool, host_bytes: int | None) -> None:
    better = 0
    for number, problem in enumerate(_problems(shared, host_bytes)):
        given, sources = given_of(problem), (random.Random(number), random.Random(number))
        share = (0.0, 0.15, 0.9)[number % 3]
        choice, shadow = greedy(given) or swap_all(given), (None, _shadow(given, number))[number % 2]
        plain = Annealing(given, choice, sources[0], share, shadow)
        native = Native(given, choice, sources[1], share, shadow)
        assert plain.now == native.now
        if plain.now == FAULT:
            continue
        first, hot = plain.best, 0.003 * sum(given.time)
        told = [list(one.drafts(530, hot, lambda: False)) for one in (plain, native)]
        assert told[0] == told[1] and plain.draft == native.draft
        assert (plain.now, plain.best) == (native.now, native.best)
        assert sources[0].getstate() == sources[1].getstate()
        better += plain.best < first
    assert better > 3


@pytest.mark.skipif(NATIVE is None, reason="built without the native extension")
def test_a_plan_is_the_same_with_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, limits = layered(0.1, hardware="rtx-3090"), Limits(work=0.001)
    native = Joint(singles=False).solve(problem, limits)
    assert native.reason is not None and "make build" not in native.reason
    monkeypatch.setattr(anneal, "NATIVE", None)
    assert type(annealing_of(given_of(problem), swap_all(given_of(problem)), random.Random(1))) is Annealing
    plain = Joint(singles=False).solve(problem, limits)
    assert native.plan == plain.plan and native.bound == plain.bound
    assert plain.reason is not None and "the native search is not built" in plain.reason


@pytest.mark.skipif(NATIVE is None, reason="built without the native extension")
def test_the_extension_refuses_another_state_of_random_numbers() -> None:
    given = given_of(layered(0.1))
    assert NATIVE is not None
    for state in ([1, 2, 3], [0] * 624 + [625]):
        with pytest.raises(ValueError, match="624 words and the place of the next one"):
            NATIVE.Annealing(given, [[] for _ in range(len(given))], [], state, 0.1, _shadow(given, 1))
