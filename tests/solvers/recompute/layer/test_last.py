"""A last layer without backward windows, and sizes that count less where they are made again: against every mix."""

import random

import pytest
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.ir import InvalidInput, LayerOp, Limits, RecomputeLayerProblem, Status, Window
from solvers.ir.codec import plan_file
from solvers.recompute.layer import CheckmateLayer, Heu
from tests.solvers.recompute.layer.brute_force import mixes, random_problem


def op(time_us: int, output_bytes: int, *inputs: int) -> LayerOp:
    return LayerOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=False, needed=True)


STORY = RecomputeLayerProblem(
    name="two ops, one of which fits the all-reduce", layers=4, inflight_microbatches=1, last_stage=True,
    budget_bytes=4 * 20 + 2 * 8, static_bytes=0, layer_input_bytes=0, last_windowless=True,
    windows=(Window(name="all-reduce", phase="backward", time_us=10),), ops=(op(10, 8), op(30, 20, 0)),
)  # fmt: skip
"""Op 1 is stored, op 0 runs again in the window of the layer behind: the last layer has none."""


def test_what_is_planned_for_windows_that_are_not_there_costs_its_time() -> None:
    for groups in (1, 2, None):
        answer = Heu(groups=groups).solve(STORY, Limits())
        assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, 10, 10)
    assert Heu().solve(replace(STORY, last_windowless=False), Limits()).objective == 0


def test_eight_bytes_more_and_the_last_layer_stores_it() -> None:
    """Only with two policies; that of the last layer is listed last."""
    problem = replace(STORY, budget_bytes=STORY.budget_bytes + 8)
    assert Heu().solve(problem, Limits()).objective == 10
    two = Heu(groups=2).solve(problem, Limits())
    assert two.objective == 0 and two.plan is not None
    assert [(group.layers, group.stored) for group in two.plan.groups] == [(3, (1,)), (1, (0, 1))]


def test_a_working_set_that_is_let_go_on_the_way_needs_less() -> None:
    """Both ops run again: 8 + 20 bytes at once, or as many as are there at a time."""
    problem = replace(STORY, budget_bytes=20, last_windowless=False)
    assert Heu().solve(problem, Limits()).least_budget_bytes == 28
    assert Heu().solve(replace(problem, again_bytes=(0, 20)), Limits()).objective == 120  # op 1 everywhere


def test_sizes_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"again_bytes has 1 sizes for 2 ops: give one for each op"):
        replace(STORY, again_bytes=(1,))
    with pytest.raises(InvalidInput, match=r"again_bytes\[1\] is 21, above the op's output of 20 bytes"):
        replace(STORY, again_bytes=(0, 21))


def varied(seed: int) -> RecomputeLayerProblem:
    """A tiny stage with a last layer that has no backward windows; every other one with working sets of its own."""
    source = random.Random(seed)
    problem = random_problem(seed, max_layers=3) if seed % 3 else random_problem(seed, max_ops=3, max_layers=5)
    again = tuple(source.randint(0, one.output_bytes) for one in problem.ops)
    return replace(problem, last_windowless=True, again_bytes=again if seed % 2 else None)


@pytest.mark.parametrize("seed", range(1000, 1120))
def test_every_number_of_groups_is_exact_and_the_bound_holds_for_all(seed: int) -> None:
    problem = varied(seed)
    best, least = mixes(problem)
    for groups in (1, 2, None):
        answer = Heu(groups=groups).solve(problem, Limits())
        assert answer.objective == mixes(problem, groups)[0]
        if answer.objective is None:
            assert (answer.status, answer.least_budget_bytes) == (Status.INFEASIBLE, least)
            continue
        assert check_plan(problem, plan_file(answer, problem.KIND, None)).violations == ()
        assert best is not None and answer.bound is not None and answer.bound <= best
        assert groups is not None or answer.bound == best
    alone = CheckmateLayer().solve(problem, Limits())
    assert alone.objective == mixes(replace(problem, windows=()))[0]


@pytest.mark.parametrize("seed", range(2000, 2012))
def test_the_integer_programme_finds_the_same_single_policy(seed: int) -> None:
    problem = varied(seed)
    answer = Heu(method="ilp").solve(problem, Limits())
    assert answer.objective == mixes(problem, 1)[0]
    assert answer.objective is None or (answer.bound or 0) <= mixes(problem)[0]  # type: ignore[operator]
