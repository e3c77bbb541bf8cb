"""Swap: the heuristic and the optimizer on one instance."""

import time
from pathlib import Path
from statistics import median
from typing import Any

from experiments.bench.figure import Figure
from solvers.ir.codec import read_problem
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits, Solution
from solvers.planner import build_solver

GREEDY_RUNS = 7


def swap_figures(instance: Path, time_limit_s: float, threads: int) -> list[Figure]:
    """Greedy and MILP on one swap instance, judged against each other and against unlimited memory."""
    problem, _ = read_problem(instance)
    if problem.KIND != "swap":
        raise InvalidInput(f"{instance} holds a {problem.KIND} problem: give a swap problem")
    greedy, milp = build_solver("greedy-swap", {}), build_solver("milp-swap", {})
    limits = Limits(time_s=time_limit_s, threads=threads)
    times = []
    for _ in range(GREEDY_RUNS):
        began = time.perf_counter()
        quick = greedy.solve(problem, limits)
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    best = milp.solve(problem, limits)
    spent = time.perf_counter() - began
    on = f"on {problem.name}"
    return [
        Figure("greedy-swap, time", 1e3 * median(times), "ms", None, "", f"median of {GREEDY_RUNS} runs {on}"),
        Figure(
            "greedy-swap, step time", quick.objective, "µs", _over(quick, quick.base), "unlimited", f"its plan, {on}"
        ),
        Figure(
            "milp-swap, time", spent, "s", spent / median(times), "greedy", f"one run, limit {time_limit_s:g} s, {on}"
        ),
        Figure(
            "milp-swap, step time", best.objective, "µs", _over(best, best.base), "unlimited", best.engine or "none"
        ),
        Figure("milp-swap, gap", _percent(best.gap), "%", None, "", "(objective - bound) / objective"),
        Figure(
            "milp-swap, overhead gap",
            _percent(best.overhead_gap),
            "%",
            None,
            "",
            "(objective - bound) / (objective - base)",
        ),
        Figure(
            "greedy overhead",
            _overhead(quick),
            "µs",
            _ratio(_overhead(quick), _overhead(best)),
            "milp",
            "objective - base",
        ),
    ]


def _over(solution: Solution[Any], base: int | None) -> float | None:
    return None if solution.objective is None or not base else solution.objective / base


def _overhead(solution: Solution[Any]) -> float | None:
    return None if solution.objective is None or solution.base is None else solution.objective - solution.base


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
