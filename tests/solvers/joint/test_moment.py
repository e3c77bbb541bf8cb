"""Model M: its certificates are added up by the judge from the problem alone, and never prove too much."""

import random

import pytest
from msgspec.structs import replace

from solvers.check.joint.bound import add_up
from solvers.check.joint.moment import Moment
from solvers.ir import JointProblem, Limits
from solvers.joint import moment
from solvers.joint.draft import kept_of, measure
from solvers.joint.given import given_of
from solvers.joint.moment import Proof, Relaxation
from solvers.joint.moments import moments
from tests.solvers.joint.brute_force import optimum, random_problem
from tests.solvers.joint.drafts import random_draft
from tests.solvers.joint.layered import layered

SEEDS = 24


def proofs(problem: JointProblem) -> list[Proof]:
    given = given_of(problem)
    found = (Relaxation(given, stage).proof(Limits(), "highs") for stage in range(len(given) - 1))
    return [proof for proof in found if proof is not None]


def test_no_bound_is_false_and_some_say_something() -> None:
    told = 0
    for seed in range(SEEDS):
        problem = random_problem(seed)
        best = optimum(problem)
        for proof in proofs(problem) if best is not None else ():
            faults, bound = add_up(problem, proof.certificate)
            assert faults == []
            assert best is not None and proof.bound_us <= bound <= best, (seed, proof.stage)
            told += proof.bound_us > sum(op.time_us for op in problem.ops)
    assert told > 3


@pytest.mark.parametrize("position", [0.02, 0.1, 0.3])
def test_rows_that_solutions_break_prove_as_much_as_all_rows(position: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes with rows for two outputs at first, of layers that make six each."""
    problem = layered(position)
    stage = next(number for number, op in enumerate(problem.ops) if op.name == "head")
    bounds = {}
    for lines in (2, 1000):
        monkeypatch.setattr(moment, "LINES", lines)
        relaxation = Relaxation(given_of(problem), stage)
        few = relaxation.proof(Limits(), "highs")
        assert few is not None and relaxation.refined(few, Limits(time_s=0.0), "highs") is few
        found = relaxation.refined(few, Limits(), "highs")
        assert add_up(problem, found.certificate) == ([], found.bound_us)
        bounds[lines] = few.bound_us, found.bound_us
    assert bounds[2][0] < bounds[2][1] == bounds[1000][1] == bounds[1000][0]


def test_any_prices_prove_no_more_than_the_optimum() -> None:
    """Weak duality: the judge's sum holds whatever the numbers are."""
    source = random.Random("prices")
    for seed in range(SEEDS):
        problem = random_problem(seed)
        best = optimum(problem)
        if best is None:
            continue
        given = given_of(problem)
        for stage in range(len(given) - 1):
            rows = Relaxation(given, stage).rows
            duals = {row.key: source.randint(0, 12) * (-1 if row.is_upper else 1) for row in rows}
            certificate = {"form": "moment/2", "stage": stage, "unit": 8, "duals": duals}
            faults, bound = add_up(problem, certificate)
            assert faults == [] and bound <= best, (seed, stage)


def test_valid_drafts_are_solutions_of_every_row() -> None:
    """What the proof in the README says, row by row, of random valid plans at all moments."""
    tried = 0
    for seed in range(1500):
        problem = random_problem(seed % 200)
        problem = replace(problem, budget_bytes=problem.budget_bytes + seed % 7)
        given, draft = random_draft(problem, seed)
        found = measure(given, draft)
        if found.violation is not None:
            continue
        kept = kept_of(given, draft.again)
        for q in range(len(given) - 1):
            columns: dict[str, float] = {}
            for i in range(q + 1):
                stages = [s for s in range(q + 1, len(given)) if i in draft.again[s]]
                again, hidden = bool(stages), all(given.graph.comm[s] for s in stages)
                there = any(t <= q and (until > q) for t in range(q + 1) for j, until in kept.runs[t].items() if j == i)
                away = any(
                    op == i and out_after < q and in_at > q and found.out[number][1] <= found.ready[q]
                    for number, (op, out_after, in_at) in enumerate(draft.away)
                )
                columns[f"again/{i}"] = again and not hidden
                columns[f"hide/{i}"] = again and hidden
                columns[f"keep/{i}"] = there and not away
                columns[f"swap/{i}"] = away and not again
            relaxation = Relaxation(given, q)
            before = sum(given.time[:q])
            columns["wait"] = found.ready[q] - before
            columns["late"] = found.end[-1] - sum(given.time)
            for row in relaxation.rows:
                left = sum(weight * columns[key] for key, weight in row.weights.items())
                assert left <= row.side if row.is_upper else left >= row.side, (seed, q, row.key)
            hides = [key for key, value in columns.items() if value and key.startswith("hide/")]
            assert all(Moment(problem, q).columns.get(key) is not None for key in hides), (seed, q)
        tried += 1
    assert tried > 300


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stage": 99}, "stage is 99, outside"),
        ({"unit": 0}, "unit is 0"),
        ({"duals": {"need/77": 1}}, "which is no row of this relaxation"),
        ({"duals": {"memory/1": 1}}, "has no lower limit"),
        ({"duals": {"window/2": 1}}, "has no lower limit"),
        ({"duals": {"window/0": -1}}, "which is no row of this relaxation"),
        ({"duals": {"memory/0": -1}}, "which is no row of this relaxation"),
        ({"duals": {"step": -1}}, "has no upper limit"),
        ({"duals": {"step": 0.5}}, "not a whole number"),
        ({"duals": []}, "not an object"),
        ({"other": 1}, "which is none of"),
    ],
)
def test_bad_certificates_are_refused(change: dict[str, object], said: str) -> None:
    certificate = {"form": "moment/2", "stage": 1, "unit": 4, "duals": {"step": 4}} | change
    faults, bound = add_up(random_problem(0), certificate)
    assert len(faults) == 1 and said in faults[0]
    assert bound == -float("inf")


def test_a_moment_without_room_proves_nothing_or_that_there_is_no_plan() -> None:
    problem = random_problem(0)
    for less in range(1, 4):
        short = replace(problem, static_bytes=problem.budget_bytes - less)
        assert optimum(short) is None
        for proof in proofs(short):
            assert add_up(short, proof.certificate)[0] == []


def test_layers_are_bounded_well() -> None:
    problem = layered(0.1)
    best = max(proof.bound_us for proof in proofs_at_hardest(problem))
    assert best > sum(op.time_us for op in problem.ops)


def proofs_at_hardest(problem: JointProblem) -> list[Proof]:
    given = given_of(problem)
    found = (Relaxation(given, stage).proof(Limits(), "highs") for stage in moments(given))
    return [proof for proof in found if proof is not None]
