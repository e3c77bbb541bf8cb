"""Certificates of `layout` bounds: never above the optimum, whatever is in them; what cannot be added up is refused."""

import copy
import json
import math
import random
from typing import Any

import pytest
from msgspec.structs import replace

from solvers.check.layout.bound import (
    MOST_DECISIONS,
    MOST_SETS,
    add_up_decisions,
    add_up_floor,
    add_up_least_memory,
    add_up_tree,
)
from solvers.check.layout.floor import base_us
from solvers.check.layout.least import least_device_bytes
from solvers.engines import Answer, LinearModel, solve
from solvers.engines.model import Basis
from solvers.ir import LayoutProblem, Limits
from solvers.layout.evaluate import instance
from solvers.layout.exact.bound import BoundTree
from tests.solvers.layout.brute_force import optimum, random_problem

Certificate = dict[str, Any]


def ask(model: LinearModel, basis: Basis | None) -> Answer:
    """A linear program's optimum."""
    return solve(model, Limits(time_s=20), "highs", basis=basis)


def certified(problem: LayoutProblem, most_us: int, queue: bool = False) -> tuple[Certificate, int]:
    """A tree's certificate as it is read from a file, and the bound that its solver claims."""
    tree = BoundTree(instance(problem), most_us, queue)
    tree.run(ask, lambda: False)
    certificate: Certificate = json.loads(json.dumps(tree.certificate()))
    return certificate, tree.bound_us


@pytest.fixture(scope="module")
def proofs() -> list[tuple[LayoutProblem, int, Certificate]]:
    """Tiny problems, their optima by counting, and certificates of both trees for all that ends by 10 µs more."""
    found = []
    for seed in range(500, 540):
        problem = random_problem(seed)
        best = optimum(problem)
        if best is not None:
            certificate, bound_us = certified(problem, best + 10, queue=bool(seed % 2))
            assert add_up_tree(problem, certificate) == ([], bound_us), seed
            found.append((problem, best, certificate))
    assert len(found) > 25
    return found


def test_no_certificate_lies_above_the_optimum(proofs: list[tuple[LayoutProblem, int, Certificate]]) -> None:
    tight = 0
    for problem, best, certificate in proofs:
        faults, proved = add_up_tree(problem, certificate)
        assert faults == []
        assert proved <= best
        tight += proved == best
    assert tight > len(proofs) / 2


def test_a_certificate_for_less_than_the_optimum_proves_one_more(
    proofs: list[tuple[LayoutProblem, int, Certificate]],
) -> None:
    """Where nothing ends by the optimum − 3, at most the optimum − 2 is proved."""
    met = 0
    for problem, best, _ in proofs[:15]:
        certificate, _ = certified(problem, best - 3, queue=True)
        _, proved = add_up_tree(problem, certificate)
        assert proved <= best - 2
        met += proved == best - 2
    assert met > 8


def test_what_is_changed_proves_no_more_than_the_truth(
    proofs: list[tuple[LayoutProblem, int, Certificate]],
) -> None:
    """Multipliers, limits and leaves at random: refused, or the bound still lies at the optimum or below."""
    source, refused, weaker = random.Random(7), 0, 0
    for problem, best, certificate in proofs * 18:
        forged = copy.deepcopy(certificate)
        _forge(forged, source)
        faults, proved = add_up_tree(problem, forged)
        assert proved <= best, forged
        refused += bool(faults)
        weaker += not faults and proved < add_up_tree(problem, certificate)[1]
    assert refused > 50
    assert weaker > 100


def _forge(certificate: Certificate, source: random.Random) -> None:
    """One to three changes."""
    for _ in range(source.randint(1, 3)):
        leaves = certificate["leaves"]
        leaf = source.choice(leaves) if leaves else {"duals": {}, "limits": {}}
        kind = source.randrange(7)
        if kind == 0 and leaf["duals"]:
            key = source.choice(list(leaf["duals"]))
            leaf["duals"][key] = round(leaf["duals"][key] * source.uniform(-2, 3)) + source.randint(-9, 9)
        elif kind == 1 and leaf["duals"]:
            leaf["duals"].pop(source.choice(list(leaf["duals"])))
        elif kind == 2 and leaf["limits"]:
            leaf["limits"][source.choice(list(leaf["limits"]))][source.randrange(2)] += source.choice((-1, 1))
        elif kind == 3 and len(leaves) > 1:
            leaves.remove(leaf)
        elif kind == 4:
            leaf["duals"][source.choice(("network", "memory", "compute/1/1", "finish/2", "none/1"))] = 2**40
        elif kind == 5:
            certificate["unit"] = max(1, round(certificate["unit"] * source.choice((0.5, 0.9, 1.1))))
        else:
            certificate["leaves"] = [*leaves, copy.deepcopy(leaf)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": 0}, "unit is 0, outside 1…"),
        ({"most_us": -1}, "most_us is -1, outside 0…"),
        ({"most_us": 1.5}, "most_us is 1.5, not a whole number"),
        ({"leaves": []}, "leaves is empty: nothing is proved"),
        ({"leaves": [{"limits": {}}]}, "leaves[0] lacks duals"),
        ({"leaves": [{"limits": {"end/0": [0, 1]}, "duals": {}}]}, "leaves[0].limits has 'end/0', which is no whole"),
        ({"leaves": [{"limits": {"buffers": [0, 99]}, "duals": {}}]}, "leaves[0].limits of buffers[1] is 99, outside"),
        ({"leaves": [{"limits": {"buffers": [1, 1]}, "duals": {}}]}, "leaves[0] holds buffers in 1…1, but no other"),
        ({"leaves": [{"limits": {}, "duals": {"finish/9": 1}}]}, "leaves[0].duals has 'finish/9', which is no row"),
        ({"leaves": [{"limits": {}, "duals": {"memory": 1}}]}, "leaves[0].duals of memory is 1, but that row has no"),
        ({"note": 1}, "the certificate has 'note', which is none of form, unit, most_us, leaves"),
    ],
)
def test_a_malformed_tree_is_refused(changes: Certificate, words: str) -> None:
    good: Certificate = {"form": "layout-tree/1", "unit": 1, "most_us": 100, "leaves": [{"limits": {}, "duals": {}}]}
    assert add_up_tree(random_problem(1), good) == ([], 0)
    faults, proved = add_up_tree(random_problem(1), good | changes)
    assert proved == -math.inf
    assert faults[0].startswith(words)


def test_counting_again_gives_the_optimum_or_that_nothing_fits() -> None:
    form = {"form": "every-decision/1"}
    for seed in range(25):
        problem = random_problem(seed)
        assert add_up_decisions(problem, form) == ([], optimum(problem) or math.inf)
    many = replace(problem, blocks=problem.blocks * 8)
    faults, proved = add_up_decisions(many, form)
    assert proved == -math.inf
    assert f"no more than {MOST_DECISIONS} and {MOST_SETS} are looked at" in faults[0]
    ample = replace(problem, blocks=(problem.blocks * 8)[:8], device_bytes=10**6, host_bytes=10**6)
    faults, proved = add_up_decisions(ample, form)
    assert proved == -math.inf
    assert f"no more than {MOST_DECISIONS} are judged one by one" in faults[0]


def test_the_closed_forms_are_computed_again() -> None:
    problem = random_problem(2)
    assert add_up_floor(problem, {"form": "floor/1"}) == ([], base_us(problem))
    assert add_up_floor(problem, {"form": "floor/1", "bound_us": 10**6})[1] == -math.inf
    least = {"form": "least-memory/1"}
    roomy = replace(problem, host_bytes=10**6)
    needed = least_device_bytes(roomy)[0]
    assert add_up_least_memory(replace(roomy, device_bytes=needed - 1), least) == ([], math.inf)
    faults, proved = add_up_least_memory(replace(roomy, device_bytes=needed), least)
    assert (faults, proved) == (
        [f"at least {needed} bytes are needed, and the device has {needed}: nothing is proved"],
        -math.inf,
    )


def test_what_a_small_host_lacks_is_added_to_the_least_memory() -> None:
    """Nothing is said to be impossible that some decision does; one byte less is, here in every case."""
    met, form = 0, {"form": "least-memory/1"}
    for seed in range(12):
        problem = replace(random_problem(seed), host_bytes=2)
        device = next(n for n in range(1000) if optimum(replace(problem, device_bytes=n)) is not None)
        assert add_up_least_memory(replace(problem, device_bytes=device), form)[0]
        met += not add_up_least_memory(replace(problem, device_bytes=device - 1), form)[0]
    assert met == 12
