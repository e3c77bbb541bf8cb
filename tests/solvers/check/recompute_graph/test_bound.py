"""Certificates of lower bounds: stories by hand, and every bound against the optimum."""

import copy
import math
import random
from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.check import check_plan
from solvers.check.recompute_graph import bound as bound_file
from solvers.check.recompute_graph.bound import add_up, packed
from solvers.check.recompute_graph.certificate import Prices
from solvers.check.recompute_graph.cut import Shape
from solvers.check.recompute_graph.judge import base_us
from solvers.ir import RecomputeGraphProblem, Solution, Status
from solvers.ir.codec import plan_file
from tests.solvers.check.certificates import SPLIT, STORY, Certificate, Programs, leaf, op, shaken, story
from tests.solvers.check.recompute_graph.naive_cut import held, plan_of, random_shape
from tests.solvers.recompute.graph import brute_force


def test_a_story_by_hand() -> None:
    """Base 18. One leaf, in quarters of a µs: 72 + 16·1 − 4·3 + (0 − 16 + 4·4)·z + (16 − 4·4)·y = 76 quarters = 19 µs.

    Split on y: where op 0 is not computed again, memory misses by 1 byte: 18 + 16·1 − 4·3 + (0 − 16 + 16)·z = 22; where
    it is, 18 + 4·y = 22. And 22 is the optimum. No prices prove the base.
    """
    assert add_up(STORY, story([leaf(None, {"need/0/0": 16, "memory/2": -4})], unit=4)) == ([], 19)
    assert add_up(STORY, story(SPLIT)) == ([], 22)
    assert brute_force.optimum(STORY) == 22
    assert add_up(STORY, story([leaf()])) == ([], 18)


def test_bounds_are_rounded_up_to_whole_microseconds() -> None:
    """A quarter of the prices: 72 + 4 − 3 + (0 − 4 + 4)·z + (16 − 4)·0 = 73 quarters, more than 18 µs."""
    assert add_up(STORY, story([leaf(None, {"need/0/0": 4, "memory/2": -1})], unit=4)) == ([], 19)
    assert add_up(STORY, story([leaf()], unit=4)) == ([], 18)


def test_check_adds_up_the_certificate_of_a_plan_file() -> None:
    def violations(bound: int, certificate: Certificate) -> tuple[str, ...]:
        plan = plan_of([{0}, {1}, {2}, {0, 3}], [set(), {0}, {1}, {2}, set()])
        solution = Solution(
            status=Status.FEASIBLE,
            plan=plan,
            objective=22,
            bound=bound,
            base=18,
            solver="test",
            certificate=certificate,
        )
        return check_plan(STORY, plan_file(solution, STORY.KIND, None)).violations

    assert violations(22, story(SPLIT)) == ()
    assert violations(19, story([leaf()])) == ("bound_us is 19, but the certificate proves only 18",)
    assert violations(22, story(SPLIT, unit=0)) == (f"certificate: unit is 0, outside 1…{2**100}",)


WINDOWS = RecomputeGraphProblem(
    name="three ops of 3 us, read again behind op 3; two windows",
    budget_bytes=6,
    static_bytes=0,
    ops=(
        *(op(3, 2), op(3, 2), op(3, 2), op(1, 5)),
        *(op(5, 0, comm=True), op(1, 0, 0, 4), op(4, 0, 5, comm=True), op(1, 0, 1, 2, 6)),
    ),
)
THREE = {"cut": 3, "first": 3, "last": 3, "groups": [[[0], [1], [2]]], "zones": [7]}


def test_windows_hold_whole_recomputations() -> None:
    """Beside op 3 (5 bytes) there is room for none of the three, so all are computed again; each window hides one.

    Base 21; a recomputation is worth 3 in the windows, which hold 3 + 3. With all three: 21 − 6 + 3·3 + (3 − 3)·h = 24.
    With at most two memory misses: 21 − 6 + 10·3 − 5·1 + (3 − 5·2)·2 + (−10 + 5·2)·z = 26. The windows have 9 µs, room
    for three: what they have in all proves only the base.
    """
    priced = {"0": {"3": 3}}
    some = leaf({"y/0/0": [0, 2]}, {"need/0/0": 10, "memory/3": -5}, priced)
    assert add_up(WINDOWS, story([some, leaf({"y/0/0": [3, 3]}, None, priced)], **THREE)) == ([], 24)
    assert brute_force.optimum(WINDOWS) == 24
    assert max(add_up(WINDOWS, story([leaf({"y/0/0": [3, 3]}), some], **THREE))[1], 21) == 21


def forward_cut(seed: int, layers: int) -> tuple[RecomputeGraphProblem, Shape]:
    """A problem of alike layers, cut at one of the first backward ops: forward layers in a group, the rest explicit."""
    problem = brute_force.layered(seed, layers)
    source, count, first = random.Random(seed), len(problem.ops), 1 + 3 * layers
    cut = first + source.randrange(3)
    last = source.choice([cut, first + 2, count - 1])
    explicit = range(first, last + 1)
    alike = tuple(tuple(range(1 + 3 * layer, 4 + 3 * layer)) for layer in range(layers))
    windows = [t for t in range(cut + 1, count) if t == count - 1 or problem.ops[t].comm]
    zones = (count - 1,) if seed % 3 else tuple(windows)
    peaks = frozenset({source.choice(explicit)})
    return problem, Shape(cut, first, last, frozenset(explicit), (((0,),), alike), zones, peaks)


def any_cut(seed: int) -> tuple[RecomputeGraphProblem, Shape]:
    """Any problem, any shape."""
    problem = brute_force.random_problem(seed)
    return problem, random_shape(random.Random(seed), problem, whole=True)


def test_no_certificate_proves_more_than_the_optimum() -> None:
    """Trees of up to four leaves with their best prices, and with prices shaken, against brute force on 90 problems.

    The best prices prove what the linear programs are worth; often that is more than the base. Some ops of the last
    thirty run once only.
    """
    seen: Counter[str] = Counter()
    for seed in range(90):
        problem, shape = forward_cut(seed, 2) if seed % 2 else any_cut(seed)
        if seed >= 60:
            problem = held(random.Random(seed), problem)
        optimum = brute_force.optimum(problem)
        if optimum is None:
            continue
        programs, source, base = Programs(problem, shape), random.Random(seed), base_us(problem)
        leaves = programs.tree(depth=seed % 3)
        certificate = programs.certificate(leaves)
        faults, proved = add_up(problem, certificate)
        assert faults == []
        worth = base + min(solved.value_us for solved in leaves)
        assert math.ceil(worth - 0.01) <= proved <= optimum
        for share in (0.03, 0.1, 0.1, 0.3, 1.0):
            faults, less = add_up(problem, shaken(source, certificate, share))
            assert faults == []
            assert less <= optimum
            seen["shaken, above the base"] += less > base
        seen["all"] += 1
        seen["above the base"] += proved > base
        seen["optimal"] += proved == optimum > base
    assert seen["all"] >= 40
    assert seen["above the base"] >= 15
    assert seen["optimal"] >= 2
    assert seen["shaken, above the base"] >= 10


@cache
def proved_tree() -> tuple[RecomputeGraphProblem, Certificate, float]:
    """A certificate of four leaves that proves more than the base, and what it proves."""
    problem, shape = forward_cut(45, 3)
    programs = Programs(problem, shape)
    certificate = programs.certificate(programs.tree(depth=2))
    faults, proved = add_up(problem, certificate)
    assert faults == []
    assert proved > base_us(problem)
    assert len(certificate["leaves"]) == 4
    return problem, certificate, proved


def test_leaves_must_cover_every_point() -> None:
    """Without any one leaf, with one leaf narrowed, or with the same leaf for another: refused."""
    problem, certificate, _ = proved_tree()
    leaves = certificate["leaves"]
    for n in range(4):
        missing = {**certificate, "leaves": leaves[:n] + leaves[n + 1 :]}
        assert len(add_up(problem, missing)[0]) == 1
        twice = {**certificate, "leaves": [*leaves[:n], leaves[n - 1], *leaves[n + 1 :]]}
        assert len(add_up(problem, twice)[0]) == 1
        assert len(add_up(problem, {**certificate, "leaves": [*leaves, leaves[n]]})[0]) == 1
        for key in leaves[n]["limits"]:
            wide = copy.deepcopy(certificate)
            wide["leaves"][n]["limits"][key] = [0, 0] if leaves[n]["limits"][key] != [0, 0] else [1, 1]
            assert len(add_up(problem, wide)[0]) == 1


def test_the_order_of_leaves_does_not_matter() -> None:
    problem, certificate, proved = proved_tree()
    for seed in range(5):
        leaves = random.Random(seed).sample(certificate["leaves"], 4)
        assert add_up(problem, {**certificate, "leaves": leaves}) == ([], proved)


def test_a_changed_price_proves_less() -> None:
    """Of best prices no single one can be raised or lowered by a lot and prove more; some of them prove less."""
    problem, certificate, proved = proved_tree()
    less = 0
    for n, found in enumerate(certificate["leaves"]):
        for key, price in found["duals"].items():
            for change in (2 * price, price // 2, 0):
                changed = copy.deepcopy(certificate)
                changed["leaves"][n]["duals"][key] = change
                faults, bound = add_up(problem, changed)
                assert faults == []
                assert bound <= proved
                less += bound < proved
    assert less >= 10


def test_another_shape_proves_less_or_is_refused() -> None:
    """The prices of one shape name rows that another has not, or that say something else there: never too much."""
    problem, certificate, _ = proved_tree()
    optimum = brute_force.optimum(problem)
    assert optimum is not None
    refused = 0
    group = certificate["groups"][1]
    changes = [
        {"cut": certificate["cut"] + 1},
        {"first": certificate["first"] - 1},
        {"explicit": certificate["explicit"][1:]},
        {"groups": [[[1]], group]},
        {"groups": [certificate["groups"][0], [layer[1:] for layer in group]]},
        {"peaks": []},
        {"zones": []},
    ]
    for change in changes:
        faults, bound = add_up(problem, certificate | change)
        assert faults or bound <= optimum
        refused += len(faults)
    assert refused >= 3


@given(
    st.dictionaries(st.integers(1, 12), st.integers(1, 20), max_size=4).map(lambda found: tuple(found.items())),
    st.integers(0, 40),
)
def test_a_packed_window_is_the_best_multiset(prices: Prices, capacity: int) -> None:
    """Against the table of all capacities up to this one."""
    best = [0] * (capacity + 1)
    for room in range(1, capacity + 1):
        best[room] = max([0, *(best[room - size] + worth for size, worth in prices if size <= room)])
    assert packed(prices, capacity) == best[capacity]


def test_a_window_of_too_many_packings_is_bounded_from_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """3s and 5s worth their time fill 2^53 µs at once. With a limit on steps: 11 µs at 4 for 4 µs are at most 11."""
    assert packed(((3, 3), (5, 5)), 2**53) == 2**53
    assert packed(((4, 4), (6, 5)), 11) == 9
    packed.cache_clear()
    monkeypatch.setattr(bound_file, "MOST_STEPS", 3)
    assert packed(((4, 4), (6, 5)), 11) == 11
    packed.cache_clear()
