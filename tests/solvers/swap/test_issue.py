"""When swap-ins are issued: never later for being early, and the same by the native extension."""

import random
from collections.abc import Iterator
from typing import get_args

import pytest

from solvers.swap import issue
from solvers.swap.evaluate import Instance, evaluate, instance
from solvers.swap.irregular import Irregular, Order
from solvers.swap.issue import NATIVE, Issuer, Native, issue_swap_ins
from tests.solvers.swap.brute_force import launched, random_problem


def tiny_sets(seeds: range, max_ops: int = 16, max_tensors: int = 6) -> Iterator[tuple[Instance, list[int]]]:
    """Tiny instances, every other one with launches, and some of their tensors."""
    for seed in seeds:
        problem = random_problem(seed, max_ops, max_tensors)
        given, source = instance(launched(problem, seed) if seed % 2 else problem), random.Random(seed)
        yield given, source.sample(range(len(given.size)), source.randint(1, len(given.size)))


def test_what_returns_early_never_makes_a_step_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Than if swap-ins were issued at ops only that lack memory or use a swapped tensor: 3 in 100 were, by up to 15 %.

    Others end sooner, so the early ones stay where they help.
    """
    monkeypatch.setattr(issue, "NATIVE", None, raising=False)
    sooner = 0
    for given, selected in tiny_sets(range(1500)):
        choices = issue_swap_ins(given, selected)
        with monkeypatch.context() as patched:
            patched.setattr(issue._State, "soonest", lambda state, op, following: following)
            at_events = issue_swap_ins(given, selected)
        assert (choices is None) is (at_events is None)
        if choices is None or at_events is None:
            continue
        found, before = evaluate(given, choices), evaluate(given, at_events)
        assert found is not None and before is not None and found.makespan <= before.makespan
        sooner += found.makespan < before.makespan
    assert sooner > 3


def test_makespans_are_those_of_the_recursion() -> None:
    for given, selected in tiny_sets(range(400)):
        for eager in (True, False):
            issued = Issuer(given).issue(selected, eager)
            timeline = evaluate(given, [] if issued is None else issued[0])
            assert issued is None or (timeline is not None and timeline.makespan == issued[1])


@pytest.mark.skipif(NATIVE is None, reason="the native extension was not built: run make build")
def test_the_native_extension_says_the_same() -> None:
    larger = [Irregular(7, 120, order, launches=launches) for order in get_args(Order) for launches in (False, True)]
    sets = [(given := instance(problem.build()), random.Random(3).sample(range(120), 110)) for problem in larger]
    ended = 0
    for given, selected in [*tiny_sets(range(400)), *sets]:
        python, native, source = Issuer(given), Native(given), random.Random(5)
        for eager in (True, False):
            issued = python.issue(selected, eager)
            assert native.issue(selected, eager) == issued
        every = [(tensor, source.randint(given.first[tensor] + 1, given.last[tensor])) for tensor in selected]
        for choices in (every, [] if issued is None else source.sample(issued[0], len(issued[0]))):
            assert native.makespan(choices) == python.makespan(choices)
        quick = python.quick(selected, issue.NOWHERE)
        assert native.quick(selected, issue.NOWHERE) == quick
        if quick is not None:
            assert python.quick(selected, quick[1]) == quick
            most = source.randint(given.base, quick[1])
            less = python.quick(selected, most)
            assert native.quick(selected, most) == less
            ended += less is None
    assert ended > 50
