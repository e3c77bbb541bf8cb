"""`bayplan` beside brute force, other solvers and shapes that nobody tuned it for."""

import math

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.ir import Limits, PipelineProblem, Status
from solvers.partition.baselines import AdaPipeStep, CheckmateStep, HeuStep, Lynx
from solvers.partition.bayplan import Bayplan
from solvers.partition.pipeline import Pipeline
from solvers.workload import Parallelism
from tests.solvers.partition.steps import random_step
from tests.solvers.pipeline.brute_force import optimum, random_problem

LIMITS = Limits(time_s=math.inf)


def test_it_is_mostly_the_optimum_of_tiny_steps() -> None:
    """Of 60 instances that have a plan nearly all are solved exactly, most with a proof; no bound is ever above."""
    met = proven = count = 0
    for seed in range(100, 160):
        problem = random_problem(seed)
        best, answer = optimum(problem), Bayplan().solve(problem, LIMITS)
        assert (best is None) == (answer.status is Status.INFEASIBLE), seed
        if best is None:
            continue
        assert answer.objective is not None and answer.bound is not None
        assert answer.bound <= best <= answer.objective, seed
        count, met, proven = count + 1, met + (answer.objective == best), proven + (answer.status is Status.OPTIMAL)
    assert met >= 0.9 * count and proven >= 0.5 * count, (count, met, proven)


def test_no_other_solver_is_faster_on_random_steps() -> None:
    """Unless it mixes policies in a way that a schedule of `bayplan`'s own may not hold: nearly never."""
    worse = 0
    for seed in range(40):
        problem = random_step(seed)
        best = Bayplan().solve(problem, LIMITS).objective
        for other in (Lynx(), HeuStep(hide="all"), AdaPipeStep(), CheckmateStep(cut="fastest")):
            found = other.solve(problem, LIMITS).objective
            worse += found is not None and (best is None or best > found)
    assert worse <= 1


@pytest.fixture(scope="module")
def real() -> PipelineProblem:
    machine = read_hardware("lynx-nvlink")
    cut = Parallelism(tensor=4, pipeline=4, microbatch=32, microbatches=16)
    return Pipeline(read_shape("gpt-13b"), cut, machine, machine.device().memory_bytes).problem


def test_a_real_shape(real: PipelineProblem) -> None:
    best, lynx = Bayplan().solve(real, LIMITS), Lynx().solve(real, LIMITS)
    assert best.objective is not None and lynx.objective is not None and best.bound is not None
    assert best.bound <= best.objective < lynx.objective
    assert best.gap is not None and best.gap < 0.03


def test_a_watch_and_the_clock_end_it_with_the_best_so_far(real: PipelineProblem) -> None:
    told: list[tuple[float | None, float | None]] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        told.append((incumbent, bound))
        return incumbent is not None

    answer = Bayplan().solve(real, LIMITS, watch)
    assert answer.reason == "its watch ended the search"
    assert answer.objective is not None and told[-1][0] == answer.objective
    short = Bayplan().solve(real, Limits(time_s=0.0))
    assert short.status is Status.FEASIBLE or short.reason is not None


def test_it_stops_at_the_gap(real: PipelineProblem) -> None:
    answer = Bayplan().solve(real, Limits(time_s=math.inf, gap=0.5))
    assert answer.gap is not None and answer.gap < 0.5
