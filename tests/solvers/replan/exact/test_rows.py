"""What is known of pipelines' times: proofs that are kept, and the relaxation asked no more than needed."""

import random

import numpy as np
import pytest

from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.placement import Splits
from solvers.replan.exact.rows import Excluded, Exclusions, Guess, Rows
from solvers.replan.exact.timetable import Timetable
from tests.solvers.replan.exact.problems import all_times_us, random_problem


def test_what_is_excluded_is_what_some_proof_covers() -> None:
    for seed in range(200):
        source = random.Random(seed)
        proofs = [(source.randint(1, 9), source.randint(0, 20)) for _ in range(source.randint(0, 8))]
        excluded, first = Exclusions(), Exclusions()
        for number, (microbatches, limit) in enumerate(proofs):
            (first if number % 2 else excluded).add(3, microbatches, limit)
        excluded.take(first)
        for limit in range(22):
            covered = [microbatches for microbatches, known in proofs if known >= limit]
            assert excluded.most(3, limit, 9) == min(covered, default=10) - 1
        assert excluded.most(4, 0, 9) == 9


def test_tightening_finds_where_the_relaxation_gives_in() -> None:
    for seed in range(80):
        problem = random_problem(seed)
        limits, known = StageLimits(problem, problem.layers), Excluded(Exclusions(), Exclusions(), Exclusions())
        source = random.Random(seed)
        latest = source.randint(0, 3 * limits.alone_us + 9)
        off = {depth: source.randint(-12, 12) for depth in range(1, 9, 2)}  # whatever an earlier search left
        guess = Guess(lambda depth, _: 7 * depth % 12, off)
        rows = Rows(limits, Timetable(problem), latest, 100, known, lambda _: [], guess)
        for depth, most in rows.possible(latest).items():
            found = rows.tighten(depth, latest, most)
            assert found == 0 or limits.may_end(depth, found, latest)
            assert found == most or not limits.may_end(depth, found + 1, latest)
            assert all(proofs.most(depth, latest, most) == found for proofs in (known.here, known.anyhow))
            assert known.whatever_fullest.most(depth, latest, most) == most, "the relaxation looked at full stages"


def test_a_depth_is_met_once() -> None:
    problem, asked = random_problem(3), list[int]()

    def starts(depth: int) -> list[tuple[int, ...]]:
        asked.append(depth)
        return [(problem.layers - 1, 1)]

    limits = StageLimits(problem, problem.layers)
    excluded = Excluded(Exclusions(), Exclusions(), Exclusions())
    rows = Rows(limits, Timetable(problem), 10**6, 100, excluded, starts, Guess(lambda *_: 1, {}))
    assert rows.sure(10**6)[2] == 0
    assert [rows.meet(2), rows.meet(2)] == [True, False] and asked == [2]
    assert rows.sure(10**6)[2] == rows.timetable.most_fitting((problem.layers - 1, 1))


def test_what_is_excluded_whatever_the_fullest_stage_holds_is_so_without_that_limit() -> None:
    told = 0
    for seed in range(120):
        problem, source = random_problem(seed, layers=10), random.Random(seed)
        limits = StageLimits(problem, source.randint(2, 6))
        excluded = Excluded(Exclusions(), Exclusions(), Exclusions())
        latest = source.randint(limits.alone_us, 4 * limits.alone_us + 9)
        rows = Rows(limits, Timetable(problem), latest, 1000, excluded, lambda _: [], Guess(lambda *_: 1, {}))
        for depth, most in rows.possible(latest).items():
            for count in range(1, min(most, 8) + 1):
                rows.ask(depth, count, latest)
            free = excluded.whatever_fullest.most(depth, latest, most)
            assert free >= excluded.here.most(depth, latest, most)
            if free < min(most, 8):
                told += 1
                assert min(all_times_us(problem, depth, free + 1, problem.layers).values(), default=latest + 1) > latest
    assert told > 20


def test_what_often_stays_unanswered_is_not_asked_again_close_by(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, asked = random_problem(3), list[int]()
    limits = StageLimits(problem, problem.layers)
    guess, excluded = Guess(lambda *_: 1, {}), Excluded(Exclusions(), Exclusions(), Exclusions())
    rows = Rows(limits, Timetable(problem), 10**6, 100, excluded, lambda _: [], guess)

    def too_many(_limits: StageLimits, _depth: int, _count: int, limit_us: int, *_: object) -> Splits:
        asked.append(limit_us)
        return Splits(np.zeros((0, 1), dtype=np.int64), np.zeros(0, dtype=np.int64), False)

    monkeypatch.setattr("solvers.replan.exact.rows.witness_within", too_many)
    for limit_us in (10_000, 9_999, 9_998, 9_997, 9_990, 9_000):
        assert rows.ask(rows.depths[0], 1, limit_us) is None
    assert asked == [10_000, 9_999, 9_998, 9_000]
