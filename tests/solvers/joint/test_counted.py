"""Counts of like outputs: trees over them prove more than the linear program does, and never too much."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from experiments.joint.cases import Case
from solvers.check.joint.counted import add_up
from solvers.ir import JointProblem, Limits
from solvers.joint import Joint
from solvers.joint.counted import CountedProof, counted
from solvers.joint.given import given_of
from solvers.joint.instances import at_position
from solvers.joint.moment import Proof, Relaxation
from tests.solvers.joint.brute_force import optimum, random_problem

SEEDS = 24
LIMITS = Limits(time_s=60.0)


def _proofs(problem: JointProblem, stage: int) -> tuple[Proof, CountedProof | None]:
    relaxation = Relaxation(given_of(problem), stage)
    proof = relaxation.proof(LIMITS, "highs")
    assert proof is not None
    return proof, counted(relaxation, proof, LIMITS, "highs")


def _alike(seed: int) -> JointProblem:
    """A random problem whose outputs are of two sizes, and of two times."""
    problem, source = random_problem(seed), random.Random(f"alike {seed}")
    times, sizes = source.choice(((2, 3), (3, 5), (5, 2))), source.choice(((3, 4), (2, 5)))
    ops = [
        replace(op, time_us=times[n % 2], tail_us=None, output_bytes=sizes[n % 2]) for n, op in enumerate(problem.ops)
    ]
    return at_position(replace(problem, ops=tuple(ops)), source.choice((0.1, 0.3, 0.5)))


def test_no_bound_is_false_and_some_say_more() -> None:
    more = 0
    for seed in range(SEEDS):
        problem = _alike(seed)
        for stage in range(len(problem.ops) - 1):
            proof, found = _proofs(problem, stage)
            if found is not None:
                faults, bound = add_up(problem, found.certificate)
                best = optimum(problem)
                assert faults == [] and best is not None, (seed, stage)
                assert proof.bound_us < found.bound_us <= bound <= best, (seed, stage)
                more += 1
    assert more > 2


def test_mixtral_sends_a_whole_number_of_outputs() -> None:
    problem = Case("mixtral-8x7b", "a100-sxm-80", 0.02, 8).problem()
    stage = next(number for number, op in enumerate(problem.ops) if op.name == "head")
    proof, found = _proofs(problem, stage)
    assert found is not None and found.bound_us - proof.bound_us > 200
    assert add_up(problem, found.certificate) == ([], found.bound_us)


def test_the_answer_comes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solvers.joint.solver.bounded", lambda *_: iter(()))  # stretches prove as much here
    problem = _alike(2)
    solution = Joint().solve(problem, Limits(work=0.1))
    assert solution.certificate is not None and solution.certificate["form"] == "moment/3"
    assert add_up(problem, solution.certificate) == ([], 14) and solution.bound == solution.objective == 14


def _random_leaves(counts: list[list[str]], rows: dict[str, bool], source: random.Random) -> list[dict[str, Any]]:
    """Leaves of a random tree over the counts, with random prices on the sides that rows have."""
    boxes: list[dict[str, list[int]]] = [{}]
    for _ in range(source.randrange(4)):
        box, number = source.choice(boxes), source.randrange(len(counts))
        low, high = box.get(f"count/{number}", [0, len(counts[number])])
        if low < high:
            most = source.randrange(low, high)
            boxes.remove(box)
            boxes += [box | {f"count/{number}": [low, most]}, box | {f"count/{number}": [most + 1, high]}]
    leaves = []
    for box in boxes:
        duals = {key: source.randint(0, 12) * (-1 if upper else 1) for key, upper in rows.items()}
        duals |= {f"sum/{number}": source.randint(-12, 12) for number in range(len(counts))}
        leaves.append({"limits": box, "duals": duals})
    return leaves


def test_any_prices_on_any_tree_prove_no_more_than_the_optimum() -> None:
    source, told = random.Random("trees"), 0
    for seed in range(8):
        problem = random_problem(seed)
        best = optimum(problem)
        if best is None:
            continue
        for stage in range(len(problem.ops) - 1):
            relaxation = Relaxation(given_of(problem), stage)
            columns = [key for key in relaxation.upper if "/" in key]
            if not columns:
                continue
            counts = [source.sample(columns, source.randint(1, len(columns))) for _ in range(3)]
            leaves = _random_leaves(counts, {row.key: row.is_upper for row in relaxation.rows}, source)
            certificate = {"form": "moment/3", "stage": stage, "unit": 8, "counts": counts, "leaves": leaves}
            faults, bound = add_up(problem, certificate)
            assert faults == [] and bound <= best, (seed, stage)
            told += 1
    assert told > 15


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"counts": [["late"]]}, "which is no whole column"),
        ({"counts": [["count/0"]]}, "which is no whole column"),
        ({"counts": [["keep/0", "keep/0"]]}, "counts[0] names a column twice"),
        ({"counts": [[7]]}, "counts[0] has 7, which is no whole column"),
        ({"counts": 1}, "counts is 1, not a list"),
        ({"leaves": []}, "leaves is empty"),
        ({"leaves": [{"limits": {"count/1": [0, 1]}, "duals": {}}]}, "which is no whole column"),
        ({"leaves": [{"limits": {"count/0": [0, 1]}, "duals": {}}]}, "no other leaf holds the rest of 0…2"),
        ({"leaves": [{"limits": {"count/0": [0, 3]}, "duals": {}}]}, "outside 0…2"),
        ({"leaves": [{"limits": {}, "duals": {"sum/1": 1}}]}, "which is no row"),
        ({"leaves": [{"limits": {}, "duals": {"step": -1}}]}, "has no upper limit"),
        ({"unit": 0}, "unit is 0"),
        ({"stage": 99}, "stage is 99, outside"),
        ({"duals": {}}, "which is none of"),
    ],
)
def test_bad_certificates_are_refused(change: dict[str, object], said: str) -> None:
    leaves = [
        {"limits": {"count/0": [0, 0]}, "duals": {"sum/0": -1}},
        {"limits": {"count/0": [1, 2]}, "duals": {"sum/0": 1}},
    ]
    good = {"form": "moment/3", "stage": 1, "unit": 4, "counts": [["keep/0", "again/0"]], "leaves": leaves}
    assert add_up(random_problem(0), good)[0] == []
    faults, bound = add_up(random_problem(0), good | change)
    assert len(faults) == 1 and said in faults[0]
    assert bound == -float("inf")
