"""Model T: its certificates are added up by the judge from the problem alone, and never prove too much."""

import random
from collections import defaultdict

import pytest
from msgspec.structs import replace

from solvers.check.joint import stretch as judge
from solvers.check.joint.stretches import add_up
from solvers.engines.duals import UNIT
from solvers.ir import Limits
from solvers.joint import crowded
from solvers.joint.draft import Away, Draft, Kept, Measured, first_reader, kept_of, measure
from solvers.joint.given import Given, given_of
from solvers.joint.stretch import Leaf, Stretch, StretchProof
from solvers.joint.stretches import together
from tests.solvers.joint.brute_force import optimum, random_problem
from tests.solvers.joint.drafts import random_draft

SEEDS = (2, 5, 8, 13, 14, 17, 19, 20, 21, 25, 29, 30, 35, 40, 41, 42, 47)
"""Quickly searched by brute force; in half of them the best plan takes longer than the base."""


def stretches(given: Given) -> list[Stretch]:
    """From every stage to the end, and short ones."""
    end, everything = len(given) - 1, set(range(len(given)))
    places = {(first, last) for first in range(end) for last in (end, min(end, first + 2))}
    return [Stretch(given, first, last, everything) for first, last in sorted(places)]


def one(proof: StretchProof, unit: int = UNIT) -> dict[str, object]:
    return {"form": "stretches/1", "unit": unit, "stretches": [proof.part]}


def test_no_bound_is_false_and_some_say_something() -> None:
    told = 0
    for seed in SEEDS:
        problem = random_problem(seed)
        best, given = optimum(problem), given_of(problem)
        for stretch in stretches(given) if best is not None else ():
            proof = crowded.proof(stretch, Limits(), "highs")
            assert proof is not None and best is not None
            faults, bound = add_up(problem, one(proof))
            assert faults == []
            assert together(given, [proof]).bound_us <= bound <= best, (seed, proof.first, proof.last)
            told += together(given, [proof]).bound_us > given.base_us
    assert told > 5


def test_what_stretches_prove_adds_up() -> None:
    """Two stretches that share a stage at their ends only: together no more than the optimum, and at times more."""
    more = 0
    for seed in SEEDS:
        problem = random_problem(seed)
        best, given = optimum(problem), given_of(problem)
        middle, end, everything = len(given) // 2, len(given) - 1, set(range(len(given)))
        halves = [Stretch(given, first, last, everything) for first, last in ((0, middle), (middle, end))]
        proofs = [crowded.proof(half, Limits(), "highs") for half in halves]
        found = [proof for proof in proofs if proof is not None]
        both = together(given, found)
        faults, bound = add_up(problem, both.certificate)
        assert faults == [] and both.bound_us <= bound
        assert best is None or bound <= best, seed
        more += both.bound_us > max([given.base_us, *(together(given, [proof]).bound_us for proof in found)])
    assert more > 0


def test_any_prices_prove_no_more_than_the_optimum() -> None:
    """Weak duality: the judge's sum holds whatever the numbers are."""
    source = random.Random("prices")
    for seed in SEEDS:
        problem = random_problem(seed)
        best, given = optimum(problem), given_of(problem)
        for stretch in stretches(given) if best is not None else ():
            values = {key: source.random() for key in stretch.upper}
            rows = [*stretch.rows, *crowded.broken(stretch, values, set())]
            duals = {row.key: source.randint(0, 12) * (-1 if row.is_upper else 1) for row in rows}
            proof = StretchProof(stretch.first, stretch.last, (Leaf({}, duals, 0),))
            faults, bound = add_up(problem, one(proof, 8))
            assert faults == [] and best is not None and bound <= best, (seed, stretch.first, stretch.last)


def test_the_judge_proves_at_least_as_much_as_the_solver_says() -> None:
    """Of outputs that are not followed the solver has no columns; the judge has, and they may not cost it anything."""
    source = random.Random("tracked")
    for seed in SEEDS:
        problem = random_problem(seed)
        given = given_of(problem)
        some = {i for i in range(len(given)) if source.random() < 0.6}
        proof = crowded.proof(Stretch(given, 0, len(given) - 1, some), Limits(), "highs")
        if proof is not None:
            faults, bound = add_up(problem, one(proof))
            assert faults == [] and together(given, [proof]).bound_us <= bound, seed


def test_valid_drafts_are_solutions_of_every_row() -> None:
    """What the proof in the README says, row by row as the judge has them, of random valid plans in all stretches."""
    tried, source, families = 0, random.Random("rows"), set[str]()
    for seed in range(400):
        problem = random_problem(seed % 200)
        problem = replace(problem, budget_bytes=problem.budget_bytes + seed % 7)
        given, draft = random_draft(problem, seed)
        kept = kept_of(given, draft.again)
        found = measure(given, draft, kept)
        if found.violation is not None:
            continue
        tried += 1
        seen = _Seen(given, draft, kept, found)
        for stretch in stretches(given):
            judged = judge.Stretch(problem, stretch.first, stretch.last)
            values = {key: source.random() for key in stretch.upper}
            for row in (*stretch.rows, *crowded.broken(stretch, values, set())):
                known = judged.rows[row.key]
                assert row.side == (known.upper if row.is_upper else known.lower), row.key
                assert row.weights.items() <= known.weights.items(), row.key
                left = sum(weight * seen.value(key, stretch.last) for key, weight in known.weights.items())
                wrong = left > row.side + 1e-6 if row.is_upper else left < row.side - 1e-6
                assert not wrong, (seed, stretch.first, stretch.last, row.key)
                families.add(row.key.partition("/")[0])
    assert tried > 60
    rows = "fit both run in early out last read hold away stay one source sum use root jam beside"
    assert families == set(rows.split())


class _Seen:
    """The columns' values under a draft: what they mean, straight from when its transfers begin and end."""

    def __init__(self, given: Given, draft: Draft, kept: Kept, found: Measured) -> None:
        self.given, self.draft, self.kept, self.found = given, draft, kept, found
        self.shares: dict[tuple[str, int, int], float] = defaultdict(float)
        ready, start, count = found.ready, found.start, len(given)
        for number, (i, out_after, in_at) in enumerate(draft.away):
            lefts = [("leave", q, ready[q - 1], ready[q]) for q in range(out_after + 1, count)]
            backs = []
            for q in range(in_at, count):
                after = ready[q + 1] if q + 1 < count else start[q]
                backs += [("come", q, ready[q], start[q]), ("ahead", q, start[q], after)]
            for windows, (begin, end) in ((lefts, found.out[number]), (backs, found.back[number])):
                for name, q, since, until in windows:
                    if begin == end:  # takes no time: all in the first window that it is in
                        self.shares[name, i, q] += float(since <= end <= until)
                        if since <= end <= until:
                            break
                    else:
                        self.shares[name, i, q] += max(0, min(end, until) - max(begin, since)) / (end - begin)

    def value(self, key: str, last: int) -> float:
        """A column's value in the stretch that ends with this stage."""
        name, *numbers = key.split("/")
        i, q, found = int(numbers[0]), int(numbers[-1]), self.found
        match name:
            case "wait":
                return found.ready[q] - found.end[q - 1]
            case "stall":
                return found.start[q] - found.ready[q]
            case "more":
                return found.end[q] - found.start[q] - self.given.time[q]
            case "again":
                return float(i in self.draft.again[q])
            case "ever":
                return float(any(i in self.draft.again[s] for s in range(q + 1, last + 1)))
            case "leave" | "come" | "ahead":
                return self.shares[name, i, q]
        back = sum(self.shares[name, i, s] for s in range(q + 1) for name in ("come", "ahead"))
        host = sum(self.shares["leave", i, s] for s in range(q + 1)) - back
        return host if name == "host" else (1 - host) * self._held(i, q)

    def _held(self, i: int, q: int) -> bool:
        """Whether op i's output is in memory when op q has been allocated, what is leaving or returning included."""
        away = self._away(i, q)
        if away is not None:
            return self.found.out[self.draft.away.index(away)][1] > self.found.ready[q]
        if i == q or i in self.given.graph.inputs[q]:
            return True
        runs = self.kept.runs
        made = max((t for t in range(q + 1) if i in runs[t]), default=None)
        return made is not None and runs[made][i] > q

    def _away(self, i: int, q: int) -> Away | None:
        inside = (away for away in self.draft.away if away.op == i and away.out_after < q < away.in_at)
        found = next(inside, None)
        assert found is None or first_reader(self.kept, found) is not None
        return found


LEAF: dict[str, object] = {"limits": {}, "duals": {"in/2": 4}}
NO, YES = {"again/0/2": [0, 0]}, {"again/0/2": [1, 1]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first": 99}, "stretches[0].first is 99, outside"),
        ({"last": 0}, "stretches[0].last is 0, outside"),
        ({"leaves": []}, "stretches[0].leaves is empty"),
        ({"leaves": [LEAF | {"duals": {"fit/0/1": -1}}]}, "which is no row of this relaxation"),
        ({"leaves": [LEAF | {"duals": {"fit/1/1": 1}}]}, "has no lower limit"),
        ({"leaves": [LEAF | {"duals": {"read/1/2": -1}}]}, "has no upper limit"),
        ({"leaves": [LEAF | {"duals": {"jam/0/2/2/0/0": -1}}]}, "which is no row of this relaxation"),
        ({"leaves": [LEAF | {"duals": {"in/1": 1}}]}, "which is no row of this relaxation"),
        ({"leaves": [LEAF | {"duals": {"in/2": 0.5}}]}, "not a whole number"),
        ({"leaves": [LEAF | {"limits": {"keep/1/2": [0, 0]}}]}, "which is no whole column of this relaxation"),
        ({"leaves": [LEAF | {"limits": NO}]}, "but no other leaf holds the rest"),
        ({"leaves": [LEAF | {"limits": NO}, LEAF | {"limits": {}}]}, "are on no two sides of a split"),
        ({"other": 1}, "which is none of"),
    ],
)
def test_bad_certificates_are_refused(change: dict[str, object], said: str) -> None:
    part = {"first": 1, "last": 3, "leaves": [LEAF | {"limits": NO}, LEAF | {"limits": YES}]} | change
    faults, bound = add_up(random_problem(0), {"form": "stretches/1", "unit": 4, "stretches": [part]})
    assert len(faults) == 1 and said in faults[0]
    assert bound == -float("inf")


def test_stretches_that_share_stages_are_refused() -> None:
    leaves = [LEAF | {"duals": {}}]
    parts = [{"first": first, "last": first + 2, "leaves": leaves} for first in (0, 1)]
    faults, _ = add_up(random_problem(0), {"form": "stretches/1", "unit": 4, "stretches": parts})
    assert faults == ["stretches[1].first is 1, outside 2…4"]
