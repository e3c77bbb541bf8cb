"""Certificates are untrusted: whatever is wrong with one is told in a sentence."""

import copy
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.recompute_graph.bound import add_up
from solvers.ir import RecomputeGraphProblem
from tests.solvers.check.certificates import SPLIT, STORY, Programs, as_json, leaf, op, story
from tests.solvers.check.recompute_graph.naive_cut import random_problem, random_shape


def told(certificate: Any, problem: RecomputeGraphProblem = STORY) -> str:
    """The one fault, and no bound with it."""
    faults, proved = add_up(problem, certificate)
    assert proved == -math.inf
    (fault,) = faults
    assert "\n" not in fault
    return fault


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": 0}, "unit is 0, outside 1…"),
        ({"unit": 1.5}, "unit is 1.5, not a whole number"),
        ({"unit": True}, "unit is True, not a whole number"),
        ({"unit": 10**5000}, "unit is a number beyond 128 bits, outside 1…"),
        ({"last": 4}, "last is 4, outside 0…3"),
        ({"cut": 3}, "cut is 3, outside 0…2"),
        ({"first": 3}, "first is 3, outside 0…2"),
        ({"first": -1}, "first is -1, outside 0…2"),
        ({"explicit": [3]}, "explicit[0] is 3, outside 0…2"),
        ({"explicit": [1, 2, 1]}, "explicit and groups list 1 twice"),
        ({"explicit": [0]}, "explicit and groups list 0 twice"),
        ({"explicit": {"0": 1}}, "explicit is of type dict, not a list"),
        ({"groups": [[[0], [0]]]}, "explicit and groups list 0 twice"),
        ({"groups": [[[0, 1], [0]]]}, "groups[0] has layers of different lengths"),
        ({"groups": [[[2]]]}, "groups[0][0][0] is 2, outside 0…1"),
        ({"groups": [[0]]}, "groups[0][0] is 0, not a list"),
        ({"groups": [[["0"]]]}, "groups[0][0][0] is '0', not a whole number"),
        ({"first": 0, "cut": 0, "groups": [[[0]]]}, "groups[0][0][0] must be empty"),
        ({"zones": [2]}, "zones[0] is 2, outside 3…3"),
        ({"zones": [3, 3]}, "zones do not ascend"),
        ({"zones": None}, "zones is None, not a list"),
        ({"peaks": [1]}, "peaks[0] is 1, outside 2…2"),
        ({"peaks": [2, 2]}, "peaks list 2 twice"),
        ({"extra": 1}, "the certificate has 'extra', which is none of form, unit"),
        ({"leaves": []}, "leaves is empty: nothing is proved"),
        ({"leaves": "none"}, "leaves is 'none', not a list"),
        ({"leaves": [1]}, "leaves[0] is 1, not an object"),
        ({"leaves": [{"limits": {}, "duals": {}}]}, "leaves[0] lacks windows"),
        ({"leaves": [leaf() | {"note": "x" * 99}]}, "leaves[0] has 'note', which is none of limits, duals, windows"),
        ({"leaves": [{**leaf(), "x" * 999: 0}]}, "leaves[0] has 'xxx"),
        ({"leaves": [leaf() | {"duals": {3: 4}}]}, "leaves[0].duals has the key 3, not a text"),
    ],
)
def test_a_malformed_certificate_is_refused(changes: dict[str, Any], words: str) -> None:
    assert told(story([leaf()]) | changes).startswith(words)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (leaf({"y/0/1": [0, 1]}), "limits has 'y/0/1', which is no whole column of this relaxation"),
        (leaf({"y/0/00": [0, 1]}), "limits has 'y/0/00', which is no whole column of this relaxation"),
        (leaf({"y/\u0967/0": [0, 1]}), "limits has 'y/\u0967/0', which is no whole column of this relaxation"),
        (leaf({"y/0": [0, 1]}), "limits has 'y/0', which is no whole column of this relaxation"),
        (leaf({"e/0/0": [0, 1]}), "limits has 'e/0/0', which is no whole column of this relaxation"),
        (leaf({"s/2/0": [0, 1]}), "limits has 's/2/0', which is no whole column of this relaxation"),
        (leaf({"": [0, 1]}), "limits has '', which is no whole column of this relaxation"),
        (leaf({"y/0/0": [0, 2]}), "limits of y/0/0[1] is 2, outside 0…1"),
        (leaf({"y/0/0": [-1, 1]}), "limits of y/0/0[0] is -1, outside 0…1"),
        (leaf({"y/0/0": [1, 0]}), "limits of y/0/0 is of type list: give [low, high], low ≤ high"),
        (leaf({"y/0/0": [0]}), "limits of y/0/0 is of type list: give [low, high], low ≤ high"),
        (leaf(None, {"memory/1": -1}), "duals has 'memory/1', which is no row of this relaxation"),
        (leaf(None, {"memory/2/0": -1}), "duals has 'memory/2/0', which is no row of this relaxation"),
        (leaf(None, {"magic/2": -1}), "duals has 'magic/2', which is no row of this relaxation"),
        (leaf(None, {"window/2": -1}), "duals has 'window/2', which is no row of this relaxation"),
        (leaf(None, {"need/0/0": -1}), "duals of need/0/0 is -1, but that row has no upper limit"),
        (leaf(None, {"memory/2": 1}), "duals of memory/2 is 1, but that row has no lower limit"),
        (leaf(None, {"own/0/0": 2**101}), "duals of own/0/0 is 2535301200456458802993406410752, outside"),
        (leaf(None, {"own/0/0": 2**201}), "duals of own/0/0 is a number beyond 128 bits, outside"),
        (leaf(None, None, {"0": {}}), "windows has '0', which is no zone of this shape"),
        (
            leaf(None, None, {"9" * 30: {}}),
            "windows has '999999999999999999999999999999', which is no zone of this shape",
        ),
    ],
)
def test_a_leaf_names_only_what_there_is(found: dict[str, Any], words: str) -> None:
    assert told(story([found])).startswith(f"leaves[0].{words}")


HIDING = RecomputeGraphProblem(
    name="ops of 0 and 2 us, two windows",
    budget_bytes=9,
    static_bytes=0,
    ops=(op(2, 2), op(0, 2), op(1, 1), op(2, 1, comm=True), op(1, 1, 0, 1, 3), op(3, 1, comm=True), op(1, 1, 4, 5)),
)


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ({"1": {}}, "windows has '1', which is no zone of this shape"),
        ({"0": {"1": 4}}, "windows of zone 0 has '1', which is no time that can be hidden in its windows"),
        ({"0": {"02": 4}}, "windows of zone 0 has '02', which is no time that can be hidden in its windows"),
        ({"0": {"2": -1}}, "windows of zone 0, time 2 is -1, outside 0…"),
        ({"0": {"0": 1}}, "windows of zone 0 prices ops of no time at 1: any number of them fits into a window"),
        ({"0": [2]}, "windows of zone 0 is of type list, not an object"),
    ],
)
def test_windows_have_prices_of_their_times(windows: Any, words: str) -> None:
    shape = {"groups": [[[0]], [[1]]], "zones": [6]}
    assert told(story([leaf(None, None, windows)], **shape), HIDING).startswith(f"leaves[0].{words}")
    assert add_up(HIDING, story([leaf(None, None, {"0": {"0": 0, "2": 3}})], **shape)) == ([], 10 - 6)


def test_zones_hold_every_window_in_which_a_class_could_hide() -> None:
    """Op 0 is read in stage 4: it can be hidden in 3, but no more in 5."""
    shape = {"groups": [[[0]]], "unit": 1}
    words = "zones end before stage 3, a communication in which an op of the groups could be hidden"
    assert told(story([leaf()], **shape), HIDING) == words
    assert add_up(HIDING, story([leaf()], **shape, zones=[3]))[0] == []
    assert add_up(HIDING, story([leaf()], groups=[]))[0] == []


def test_a_missing_field_is_named() -> None:
    for name in story(SPLIT):
        broken = story(SPLIT)
        del broken[name]
        assert told(broken) == f"the certificate lacks {name}"


@pytest.mark.parametrize(
    ("leaves", "words"),
    [
        ([SPLIT[1]], "leaves[0] holds y/0/0 in 1…1, but no other leaf holds the rest of 0…1"),
        ([SPLIT[0], SPLIT[0]], "leaves[0] and leaves[1] are on no two sides of a split"),
        ([leaf(), SPLIT[0]], "leaves[0] and leaves[1] are on no two sides of a split"),
        ([leaf({"y/0/0": [0, 0]}), leaf({"z/0/0": [1, 1]})], "leaves[0] and leaves[1] are on no two sides of a split"),
        (
            [leaf({"y/0/0": [0, 0]}), leaf({"y/0/0": [1, 1], "z/0/0": [1, 1]})],
            "leaves[1] holds z/0/0 in 1…1, but no other leaf holds the rest of 0…1",
        ),
    ],
)
def test_leaves_are_those_of_a_tree(leaves: Any, words: str) -> None:
    assert told(story(leaves)).startswith(words)


def junk(source: random.Random) -> Any:
    return source.choice([None, True, -1, 0, 2, 7, 10**40, 0.5, "", "y/0/0", "9/9", [], [0], [[]], {}, {"0": {"1": 1}}])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inside for place in places(child, (*path, key)))]


@given(st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_junk_anywhere_is_a_fault_or_harmless(seed: int) -> None:
    """One to three values of a good certificate are replaced, removed or renamed: never an exception."""
    source = random.Random(seed)
    problem = random_problem(source)
    shape = random_shape(source, problem, whole=True)
    certificate = as_json(shape) | {"leaves": [leaf(None, {f"memory/{shape.cut}": -5}), leaf()][: source.randint(1, 2)]}
    for _ in range(source.randint(1, 3)):
        broken = copy.deepcopy(certificate)
        path = source.choice([place for place in places(broken) if place])
        *outer, key = path
        inside: Any = broken
        for step in outer:
            inside = inside[step]
        if source.random() < 0.6:
            inside[key] = junk(source)
        elif isinstance(inside, dict) and source.random() < 0.5:
            inside[str(junk(source))] = inside.pop(key)
        else:
            del inside[key]
        certificate = json.loads(json.dumps(broken))
    faults, proved = add_up(problem, certificate)
    assert faults or isinstance(proved, int)
    assert len(faults) <= 1
    assert (proved == -math.inf) == bool(faults)


def test_a_tree_of_real_leaves_is_read_back_from_json() -> None:
    problem = random_problem(random.Random(1))
    programs = Programs(problem, random_shape(random.Random(1), problem, whole=True))
    assert add_up(problem, programs.certificate(programs.tree(3)))[0] == []
