"""The book that a search keeps: bounds round up, plans count if they are valid and better, reasons are told once."""

import math

import pytest
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.engines import Answer
from solvers.ir import Limits, RecomputeGraphProblem, Status
from solvers.ir.codec import plan_file
from solvers.recompute.graph import Checkmate, Opt, OptIntervals, OptMilp
from solvers.recompute.graph.answers import FITS, Search, first_plans, no_plan, trivial, uninterrupted, windows_of
from solvers.recompute.graph.instances import random_layered
from solvers.recompute.graph.milp import slack_of
from solvers.recompute.graph.replay import Instance, instance
from tests.solvers.check.recompute_graph.test_judge import COMM, STORY

TIGHT = replace(STORY, budget_bytes=12)
"""Keeping everything (18 us) needs 13 bytes; computing op 0 again in stage 3 (22 us) fits, op 1 too costs 3 us more."""
AGAIN: list[set[int]] = [set(), set(), set(), {0}]
DEARER: list[set[int]] = [set(), set(), {0}, {0}]


def search(problem: RecomputeGraphProblem = TIGHT, **limits: float) -> Search:
    return Search(instance(problem), "s", Limits(**limits))  # type: ignore[arg-type]


def test_only_valid_plans_are_taken_and_only_better_ones_kept() -> None:
    none, one = search(), search()
    assert not none.offer([set()] * 4)  # 13 bytes
    assert none.objective is None
    assert one.offer(AGAIN)
    assert one.objective == 22
    best = one.runs
    assert one.offer(AGAIN)
    assert one.runs is best
    assert not one.offer([()] * 4)
    assert one.objective == 22


def test_what_nobody_reads_is_not_paid_for() -> None:
    """Op 0 computed in stage 2 as well has no reader before stage 3 computes it anew."""
    one = search()
    assert one.offer(DEARER)
    assert one.objective == 22


@pytest.mark.parametrize(
    ("bound", "slack", "whole"),
    [
        (19.0, 0.0, 19),
        (19.2, 0.0, 20),
        (20.0 + 1e-5, 1e-6, 20),  # the tolerance is relative: 20 · 10⁻⁶ is more than 10⁻⁵
        (20.0 + 3e-5, 1e-6, 21),
        (17.0, 0.0, 18),  # never below the time of each op once
        (99.0, 0.0, 22),  # nor above a plan
    ],
)
def test_bounds_are_whole_microseconds_between_the_base_and_the_plan(bound: float, slack: float, whole: int) -> None:
    one = search()
    one.offer(AGAIN)
    one.raise_bound(bound, slack)
    assert one.bound == whole
    one.raise_bound(18.5)
    assert one.bound == max(whole, 19)  # a worse bound says nothing new


def test_a_bound_without_a_plan_is_not_cut() -> None:
    one = search()
    one.raise_bound(99.5)
    assert one.bound == 100


def test_float_engines_are_not_believed_to_the_last_digit() -> None:
    assert slack_of(Answer(status=Status.FEASIBLE, engine="CP-SAT 9.15")) == 0
    assert slack_of(Answer(status=Status.FEASIBLE, engine="HiGHS 1.15.1")) == 1e-6


def test_a_search_is_done_when_stopped_out_of_time_or_near_enough() -> None:
    """A plan of 22 and a bound of 20 are 2 apart: a gap of 2/22 of the plan."""
    assert not search(time_s=math.inf).done()
    assert search(time_s=0).done()
    for gap, done in ((2 / 22 + 1e-9, True), (2 / 22 - 1e-9, False)):
        one = search(time_s=math.inf, gap=gap)
        one.offer(AGAIN)
        one.raise_bound(20)
        assert one.done() == done
        one.stopped = True
        assert one.done()


def test_the_watch_sees_the_best_of_ours_and_the_engines_and_stops() -> None:
    seen: list[tuple[float | None, float | None]] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        assert elapsed_s >= 0
        seen.append((incumbent, bound))
        return len(seen) == 6

    one = search(time_s=math.inf)
    one.watch = watch
    one.report()
    assert not one.observed(25.0, 19.5, 0.0)
    one.offer(AGAIN)
    assert not one.observed(21.0, None, 0.0)  # an engine's plan that is not ours yet
    assert not one.observed_part(None, 21.5, 0.0)  # a bound of some plans only
    assert one.observed(23.0, 17.0, 0.0)
    assert one.observed(23.0, 17.0, 0.0)  # not asked again
    assert seen == [(None, 18), (25.0, 19.5), (22, 18), (21.0, 18), (22, 18), (22, 18)]


def test_answers_tell_their_reasons_once() -> None:
    one = search()
    one.notes += ["late", "tired", "late"]
    unknown = one.answer()
    assert (unknown.status, unknown.bound, unknown.reason, unknown.base) == (Status.UNKNOWN, 18, "late; tired", 18)
    assert search().answer().reason == "no plan was found within the limits: give more time"
    one.offer(AGAIN)
    one.raise_bound(20)
    feasible = one.answer()
    assert (feasible.status, feasible.objective, feasible.bound) == (Status.FEASIBLE, 22, 20)
    one.raise_bound(22)
    one.notes.clear()
    assert (one.answer().status, one.answer().reason) == (Status.OPTIMAL, None)


def test_what_needs_no_search_is_answered_in_closed_form() -> None:
    """Op 3 reads ops 0 and 2: 4 + 1 + 2 bytes and 5 static; op 1 and its input take as many, 12."""
    least = search(replace(STORY, budget_bytes=11))
    infeasible = trivial(least)
    assert infeasible is not None
    assert (infeasible.status, infeasible.least_budget_bytes) == (Status.INFEASIBLE, 12)
    assert infeasible.engine == "closed form"
    assert infeasible.reason == "the largest working set needs at least 12 bytes, the budget is 11 bytes: raise it"
    assert trivial(search()) is None
    ample = trivial(search(STORY))
    assert ample is not None
    assert (ample.status, ample.objective, ample.engine, ample.reason) == (Status.OPTIMAL, 18, "closed form", FITS)


def test_a_proof_that_nothing_fits_raises_the_least_budget_by_a_byte() -> None:
    one = search()
    one.engine = "HiGHS 1"
    answer = no_plan(one)
    assert (answer.status, answer.least_budget_bytes) == (Status.INFEASIBLE, 13)
    assert answer.reason == "HiGHS 1 proved that no plan fits: the budget must be at least 13 bytes"


def test_ctrl_c_answers_with_the_best_so_far() -> None:
    one = search()
    one.offer(AGAIN)

    def interrupted() -> None:
        raise KeyboardInterrupt

    answer = uninterrupted(one, interrupted)  # type: ignore[arg-type]
    assert (answer.objective, one.stopped) == (22, True)
    assert answer.reason == "stopped by the user: this is the best plan so far"


def test_quick_plans_stop_at_the_first_that_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is polished; a gap that is met, or a stop, leaves the others out."""
    given = instance(TIGHT)
    polished: list[list[set[int]]] = []

    def polish(of: Instance, recomputed: list[set[int]], windows: object, stop: object) -> list[set[int]]:
        assert windows == (7,)
        polished.append(recomputed)
        return recomputed

    monkeypatch.setattr("solvers.recompute.graph.answers.evictions", lambda of, *stops: iter([AGAIN, AGAIN, AGAIN]))
    monkeypatch.setattr("solvers.recompute.graph.answers.polish", polish)
    whole, near = Search(given, "s", Limits(time_s=math.inf)), Search(given, "s", Limits(time_s=math.inf, gap=0.5))
    first_plans(whole, (7,))
    assert (len(polished), whole.objective) == (3, 22)
    first_plans(near, (7,))
    assert (len(polished), near.objective) == (3, 22)


@pytest.mark.parametrize("solver", [Checkmate(), Opt(), OptIntervals(), OptMilp()])
def test_no_solver_is_without_a_plan_for_lack_of_time(solver: Checkmate | Opt | OptIntervals | OptMilp) -> None:
    """1,200 ops, half of the memory, no time: 14 % above the base. The bound is what every plan takes."""
    problem = random_layered(1200, seed=1, comm=0.0, position=0.5)
    answer = solver.solve(problem, Limits(time_s=0.0))
    assert answer.objective is not None
    assert answer.base is not None
    assert answer.bound is not None
    assert answer.base <= answer.bound <= answer.objective < 1.2 * answer.base
    assert check_plan(problem, plan_file(answer, problem.KIND, None)).violations == ()


def test_windows_are_the_communications() -> None:
    assert windows_of(instance(COMM)) == [2]
    assert windows_of(instance(STORY)) == []
