"""Plans after failures: what each planner answers, how far from the best, and how long it takes."""

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.context import ForkServerContext
from statistics import median
from typing import Any

import msgspec

from solvers.ir.replan import NewPipeline, ReplanPlan, ReplanProblem
from solvers.ir.solution import Limits, Solution, Solver
from solvers.planner import require_clean
from solvers.replan import Algorithm1, ExactReplan
from solvers.replan.make import after_failures, symmetric_state

Planner = Solver[ReplanProblem, Solution[ReplanPlan]]
EXACT, PAPER = "exact-replan", "algorithm1"
PLANNERS: Mapping[str, Callable[[], Planner]] = {PAPER: Algorithm1, EXACT: ExactReplan}

_EVERYTHING = ("experiments.cluster.planning", "ortools.linear_solver.python.model_builder_helper")
"""Modules whose import brings all that a planner needs, also what `glop` imports when it is first asked."""


@dataclass(frozen=True)
class Answer:
    """A planner's answer to one problem: cold, with nothing remembered, and again, by the clock.

    `processor_s` is the processor time of the cold one, which other work on the machine does not lengthen.
    `gap` is (objective − bound) / objective with the exact planner's bound, None where that is unknown.
    """

    solver: str
    solution: Solution[ReplanPlan]
    cold_s: float
    processor_s: float
    again_s: float
    gap: float | None = None


@dataclass(frozen=True)
class DrawnFailure:
    """`lost` nodes that fail, drawn at random; the interval between failures is that of one node."""

    lost: int
    draw: int
    restart_us: int
    interval_us: int
    bytes_per_s: int


def failed_problem(problem: ReplanProblem, depth: int, data: int, failure: DrawnFailure) -> ReplanProblem:
    """The problem after some of `data` x `depth` nodes have failed."""
    failed = tuple(sorted(random.Random(failure.draw).sample(range(problem.nodes), failure.lost)))
    return after_failures(
        problem,
        symmetric_state(problem, depth, data),
        failed,
        restart_us=failure.restart_us,
        bytes_per_s=failure.bytes_per_s,
        expected_interval_us=max(1, failure.interval_us // (problem.nodes - failure.lost)),
    )


def without_state(problem: ReplanProblem) -> ReplanProblem:
    """The same nodes with nothing running: a plan's step time alone decides."""
    before = None if problem.current is None else len(problem.current.pipelines)
    return msgspec.structs.replace(
        problem, current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None, data_parallel=before
    )


def answers(problem: ReplanProblem, limits: Limits) -> list[Answer]:
    """Every planner's answer, each judged by the independent checker."""
    found = [_answer(name, problem, limits) for name in PLANNERS]
    bound = next((one.solution.bound for one in found if one.solver == EXACT), None)
    return [_with_gap(one, bound) for one in found]


def _answer(name: str, problem: ReplanProblem, limits: Limits) -> Answer:
    """In a process of its own, so that nothing of the model or of an earlier failure is remembered."""
    with ProcessPoolExecutor(1, mp_context=_fresh_processes()) as pool:
        answer = pool.submit(timed, name, problem, limits).result()
    require_clean(problem, answer.solution)
    return answer


@cache
def _fresh_processes() -> ForkServerContext:
    """Processes that begin with everything imported and nothing solved."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_EVERYTHING))
    return context


def timed(name: str, problem: ReplanProblem, limits: Limits) -> Answer:
    """The planner's answer, and how long it took the first and a second time; cold only in a fresh process."""
    planner = PLANNERS[name]()
    began, began_processor = time.perf_counter(), time.process_time()
    solution = planner.solve(problem, limits)
    cold_s, processor_s = time.perf_counter() - began, time.process_time() - began_processor
    began = time.perf_counter()
    planner.solve(problem, limits)
    return Answer(name, solution, cold_s, processor_s, time.perf_counter() - began)


def _with_gap(answer: Answer, bound: float | None) -> Answer:
    objective = answer.solution.objective
    if bound is None or not objective:
        return answer
    return replace(answer, gap=(objective - bound) / objective)


def middle(values: Sequence[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def counted(pipelines: Sequence[NewPipeline]) -> list[list[Any]]:
    """Layers of each stage, microbatches, and how many pipelines are such; hundreds may be alike."""
    alike = Counter((tuple(one.layers), one.microbatches) for one in pipelines)
    return [[list(layers), microbatches, count] for (layers, microbatches), count in alike.items()]


def figures_of(found: Sequence[Answer]) -> dict[str, Any]:
    """The figures of one planner over several draws: medians, the largest gap, and the last plan's pipelines."""
    gaps = [one.gap for one in found if one.gap is not None]
    last = found[-1].solution
    return {
        "statuses": sorted({one.solution.status.value for one in found}),
        "objective_us": middle([one.solution.objective for one in found]),
        "bound_us": middle([one.solution.bound for one in found]),
        "gap": max(gaps, default=None),
        "gaps": gaps,
        "cold_s": middle([one.cold_s for one in found]),
        "longest_s": max(one.cold_s for one in found),
        "processor_s": max(one.processor_s for one in found),
        "again_s": middle([one.again_s for one in found]),
        "pipelines": counted(last.plan.pipelines) if last.plan else None,
        "reasons": sorted({one.solution.reason or "" for one in found if one.solution.plan is None}),
        "policies": sorted({one.solution.plan.policy for one in found if one.solution.plan is not None}),
    }
