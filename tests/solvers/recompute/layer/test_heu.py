"""`heu` against trying every mix of policies; its bound, statuses, limits and refusals."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.engines import Answer
from solvers.ir import InvalidInput, LayerOp, Limits, RecomputeLayerProblem, Solution, Status, Window
from solvers.ir.codec import plan_file
from solvers.recompute.layer import (
    CheckmateLayer,
    Front,
    Full,
    Heu,
    Layer,
    TooManyStates,
    forget_fronts,
    front_of,
    heu,
)
from solvers.recompute.layer import front as fronts
from tests.solvers.recompute.layer.brute_force import mixes, random_problem
from tests.solvers.recompute.layer.real import costs, stage
from tests.strategies import recompute_layer_problems


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False, needed: bool = True) -> LayerOp:
    return LayerOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm, needed=needed)


STORY = RecomputeLayerProblem(
    name="two ops, one of which fits the all-reduce",
    layers=4,
    inflight_microbatches=2,
    last_stage=False,
    budget_bytes=0,
    static_bytes=100,
    layer_input_bytes=5,
    windows=(Window(name="all-reduce", phase="backward", time_us=10),),
    ops=(op(10, 8), op(30, 20, 0)),
)
"""Inputs take 2·4·5 = 40, storing op 0 everywhere 2·4·8 = 64, op 1 everywhere 2·4·20 = 160."""


def solve(problem: RecomputeLayerProblem, groups: int | None = 1) -> Solution[object]:
    answer = Heu(groups=groups).solve(problem, Limits())
    assert check_plan(problem, plan_file(answer, problem.KIND, None)).violations == () or answer.plan is None
    return answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("budget", "objective"),
    [
        (140 + 28, 160),  # both on the critical path: 8 + 20 at once, 4·(10 + 30) us
        (140 + 36, 120),  # op 0 hidden counts twice: 16 + 20, and only op 1 costs time
        (140 + 160 + 15, 40),  # op 1 stored, op 0 hidden needs 16: so it goes to the critical path
        (140 + 160 + 16, 0),  # op 1 stored, op 0 hidden
    ],
)
def test_a_story_by_hand(budget: int, objective: int) -> None:
    assert solve(replace(STORY, budget_bytes=budget)).objective == objective


def test_a_byte_too_little_is_infeasible_with_the_exact_least_budget() -> None:
    answer = solve(replace(STORY, budget_bytes=167))
    assert (answer.status, answer.least_budget_bytes) == (Status.INFEASIBLE, 168)
    assert answer.reason == "the budget is 167 bytes, the least feasible one exactly 168 bytes: raise it"


def test_a_mix_beats_one_policy() -> None:
    """Room 36 + 3·40 more: three of four layers store op 1, the last recomputes it: 30 us, not 120."""
    problem = replace(STORY, budget_bytes=140 + 36 + 120)
    one, two = solve(problem), solve(problem, groups=2)
    assert (one.status, one.objective, one.bound) == (Status.FEASIBLE, 120, 30)
    assert (two.status, two.objective, two.bound) == (Status.OPTIMAL, 30, 30)


@pytest.mark.parametrize("seed", range(120))
def test_every_number_of_groups_is_exact_and_the_bound_holds_for_all(seed: int) -> None:
    problem = random_problem(seed, max_layers=3) if seed % 4 else random_problem(seed, max_ops=3, max_layers=6)
    best, least = mixes(problem)
    for groups in (1, 2, None):
        answer = solve(problem, groups)
        assert answer.objective == mixes(problem, groups)[0]
        if answer.objective is None:
            assert (answer.status, answer.least_budget_bytes) == (Status.INFEASIBLE, least)
            continue
        assert answer.bound == best
        assert (answer.status is Status.OPTIMAL) == (answer.objective == best)
        assert answer.least_budget_bytes in (None, least)


@given(problem=recompute_layer_problems(max_ops=4, max_windows=1))
@settings(max_examples=50, deadline=None)
def test_odd_instances_too(problem: RecomputeLayerProblem) -> None:
    """Zero times and sizes, repeated inputs, windows in any order, ops that nobody needs."""
    answer = solve(problem, groups=None)
    assert answer.objective == mixes(problem)[0]


def test_the_optimum_never_worsens_as_the_budget_grows() -> None:
    layer = costs("gpt-7b", 4, 16, "lynx-nvlink")
    for groups in (1, None):
        answers = [solve(stage(layer, 6, 3, position / 10), groups).objective for position in range(11)]
        assert all(answer is not None for answer in answers)
        assert answers == sorted(answers, reverse=True)  # type: ignore[type-var]
        assert answers[0] != answers[-1] == 0


def test_the_last_stage_hides_nothing_in_forward_windows() -> None:
    """Forward windows help a stage with eight microbatches in flight; with one, storing is as light as waiting."""
    layer = costs("gpt-7b", 4, 16, "lynx-nvlink")
    middle = stage(layer, 8, 8, 0.2)
    best, best_last = solve(middle).objective, solve(replace(middle, last_stage=True)).objective
    assert best is not None
    assert best_last is not None
    assert best < best_last
    alone = stage(layer, 8, 1, 0.2)
    assert solve(alone).objective == solve(replace(alone, last_stage=False)).objective != 0


def test_no_time_still_gives_an_honest_answer() -> None:
    forget_fronts()
    problem = stage(costs("gpt-7b", 4, 16, "lynx-nvlink"), 8, 4, 0.1)
    forget_fronts()
    answer = Heu().solve(problem, Limits(time_s=0))
    assert answer.status is Status.FEASIBLE
    assert answer.bound is None
    assert answer.reason == "stopped before the layer's policies were listed: give more time"
    assert Heu().solve(replace(problem, budget_bytes=0), Limits(time_s=0)).status is Status.UNKNOWN


def test_a_watch_can_stop_it() -> None:
    forget_fronts()
    problem = replace(STORY, budget_bytes=200)
    seen: list[float] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(elapsed_s)
        return True

    assert Heu().solve(problem, Limits(), watch).status is Status.FEASIBLE
    assert len(seen) == 1


def test_a_layer_with_too_many_policies_goes_to_the_programme(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_fronts()
    monkeypatch.setattr(fronts, "MAX_STATES", 2)
    problem = replace(STORY, budget_bytes=140 + 36 + 120)
    answer = Heu().solve(problem, Limits())
    assert answer.reason is not None
    assert "too many policies to list" in answer.reason
    assert answer.engine is not None
    assert "HiGHS" in answer.engine
    monkeypatch.setattr(Front, "of", lambda *_: pytest.fail("that there are too many was forgotten"))
    assert Heu().solve(problem, Limits()).objective == answer.objective
    monkeypatch.undo()
    forget_fronts()
    assert answer.objective == Heu().solve(problem, Limits()).objective
    assert answer.bound is not None


def test_where_the_programme_runs_out_of_time_everything_again_is_no_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_fronts()
    monkeypatch.setattr(fronts, "MAX_STATES", 2)
    late = Answer(status=Status.UNKNOWN, engine="HiGHS", reason="the time limit was reached")
    monkeypatch.setattr(heu, "solve_programme", lambda *_: (late, None))
    problem = replace(STORY, budget_bytes=140 + 36 + 120)
    answer = Heu().solve(problem, Limits())
    assert answer.status is Status.FEASIBLE
    full = Full().solve(problem, Limits()).objective
    assert answer.objective is not None
    assert full is not None
    assert answer.objective <= full
    assert check_plan(problem, plan_file(answer, problem.KIND, None)).violations == ()
    assert answer.reason is not None
    assert answer.reason.endswith("the time limit was reached")
    assert Heu().solve(replace(problem, budget_bytes=0), Limits()).status is not Status.FEASIBLE
    forget_fronts()


def test_where_the_programme_has_no_plan_the_best_one_without_windows_is_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = replace(STORY, budget_bytes=140 + 160 + 16)
    late = Answer(status=Status.UNKNOWN, engine="HiGHS", reason="the time limit was reached")
    monkeypatch.setattr(heu, "solve_programme", lambda *_: (late, None))
    monkeypatch.setattr(heu, "front_of", slowly_listed)
    monkeypatch.setattr(heu, "quick_policy", lambda _: None)
    answer = Heu().solve(problem, Limits(time_s=0.2))
    assert answer.objective == CheckmateLayer().solve(problem, Limits()).objective == 40
    assert answer.reason is not None
    assert "too many policies to list in 75% of the time" in answer.reason
    assert check_plan(problem, plan_file(answer, problem.KIND, None)).violations == ()


def slowly_listed(layer: Layer, inflight: int, stop: Callable[[], bool]) -> Front:
    """The front of a layer without windows; with windows the list has no end."""
    while layer.open and not stop():
        pass
    if layer.open:
        raise TooManyStates
    return front_of(layer, inflight)


def test_without_time_the_answer_is_valid_and_never_worse_than_everything_again() -> None:
    """400 tiny layers; measured: 310 of 321 such plans are the best single policy, 1.04 times its time on average."""
    distances = []
    for seed in range(400):
        problem = random_problem(seed)
        quick = Heu().solve(problem, Limits(time_s=0.0))
        full, best = Full().solve(problem, Limits()), Heu().solve(problem, Limits())
        if quick.objective is None:
            assert full.objective is None
            continue
        assert check_plan(problem, plan_file(quick, problem.KIND, None)).violations == ()
        assert best.objective is not None
        assert best.objective <= quick.objective <= (full.objective or quick.objective)
        distances.append((quick.objective + 1) / (best.objective + 1))
    assert len(distances) > 300
    assert sum(one == 1 for one in distances) > 0.9 * len(distances)
    assert sum(distances) < 1.08 * len(distances)


def test_sizes_beyond_64_bits_are_not_guessed_at() -> None:
    answer = Heu().solve(replace(STORY, layers=2**40, inflight_microbatches=2**40, budget_bytes=2**53), Limits())
    assert answer.status is Status.UNKNOWN
    assert answer.reason is not None
    assert "exceed 64 bits" in answer.reason


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"groups": 3}, "groups is 3: choose 1 (one policy), 2 (a mix of two) or none (any mix)"),
        ({"method": "ilp", "groups": 2}, "method ilp decides one policy, but groups is 2: leave groups at 1"),
        ({"engine": "higs"}, "there is no engine 'higs': did you mean 'highs'?"),
    ],
)
def test_parameters_without_meaning_are_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        Heu(**fields)  # type: ignore[arg-type]
