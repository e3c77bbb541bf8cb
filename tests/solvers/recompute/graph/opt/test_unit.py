"""Another unit of time changes neither the plan nor the gap, and the certificate proves as much in it."""

import re

import pytest
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.ir import Limits, RecomputeGraphProblem
from solvers.ir.codec import plan_file
from solvers.recompute.graph import Opt
from solvers.recompute.graph.answers import Search
from solvers.recompute.graph.opt.solver import _Optimum
from solvers.recompute.graph.opt.unit import shortest
from solvers.recompute.graph.replay import instance
from tests.soaking import in_soak
from tests.solvers.recompute.graph.brute_force import random_problem
from tests.solvers.recompute.graph.layered import transformer


def in_units(problem: RecomputeGraphProblem, factor: int) -> RecomputeGraphProblem:
    return replace(problem, ops=tuple(replace(op, time_us=op.time_us * factor) for op in problem.ops))


def times_in(reason: str | None) -> list[float]:
    """The microseconds that a reason tells."""
    return [float(time) for time in re.findall(r"([\d.e+]+) us\b", reason or "")]


@pytest.mark.parametrize("factor", [in_soak(1_000_000), 10_000_019])
def test_the_unit_of_time_changes_nothing(factor: int) -> None:
    problem, limits = transformer(layers=2, position=0.4), Limits(work=0.2)
    one, other = Opt().solve(problem, limits), Opt().solve(in_units(problem, factor), limits)
    assert other.plan == one.plan
    assert (other.status, other.gap) == (one.status, one.gap)
    assert one.objective is not None
    assert other.objective == one.objective * factor
    assert times_in(other.reason) == [time * factor for time in times_in(one.reason)]
    scaled = in_units(problem, factor)
    assert check_plan(scaled, plan_file(other, scaled.KIND, None)).violations == ()


def test_certificates_hold_in_the_grown_unit() -> None:
    certified = 0
    for seed in range(12):
        problem = in_units(random_problem(seed), 1000)
        answer = Opt().solve(problem, Limits(work=0.2))
        if answer.certificate is None:
            continue
        certified += 1
        faults = check_plan(problem, plan_file(answer, problem.KIND, None)).violations
        assert [text for text in faults if "no decision" not in text] == [], seed
    assert certified > 1


def test_reasons_tell_microseconds() -> None:
    told = 0
    for seed in range(12):
        one = Opt().solve(random_problem(seed), Limits(work=0.2))
        other = Opt().solve(in_units(random_problem(seed), 1000), Limits(work=0.2))
        assert times_in(other.reason) == [time * 1000 for time in times_in(one.reason)], seed
        told += bool(times_in(other.reason))
    assert told > 1


def test_what_an_engine_claims_beyond_the_certificate_is_told_in_microseconds() -> None:
    short, factor = shortest(in_units(transformer(layers=2, position=0.4), 1000))
    search = Search(instance(short), "opt", Limits(work=0.2))
    search.raise_bound(search.given.base + 5)
    answer = _Optimum(search, "auto", factor).certified()
    assert answer.bound == search.given.base  # without a certificate
    assert times_in(answer.reason) == [(search.given.base + 5) * factor]


def test_times_without_a_common_divisor_and_without_any_time_stay() -> None:
    problem = random_problem(3)
    nothing = replace(problem, ops=tuple(replace(op, time_us=0) for op in problem.ops))
    assert shortest(nothing) == (nothing, 1)
    short, factor = shortest(in_units(problem, 12))
    assert in_units(short, factor) == in_units(problem, 12)
    assert factor % 12 == 0


def test_a_watch_hears_microseconds() -> None:
    heard: list[float] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        heard.extend(value for value in (incumbent, bound) if value is not None)
        return False

    problem = in_units(transformer(layers=2, position=0.4), 1_000_000)
    Opt().solve(problem, Limits(work=0.1), watch)
    assert heard
    assert all(value >= 1_000_000 for value in heard)
