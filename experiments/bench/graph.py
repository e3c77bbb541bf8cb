"""Recomputation of a whole graph: how far from the optimum `opt` ends in its time, on the shipped instances."""

import time
from collections.abc import Sequence
from pathlib import Path

from experiments.bench.figure import Figure
from solvers.check import check_plan
from solvers.ir.codec import plan_file, read_problem
from solvers.ir.errors import InvalidInput
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Limits
from solvers.planner import build_solver

SHIPPED = Path(__file__).resolve().parents[1] / "instances"
PATTERN = "opt-gpt300m-24l-*.json"
GAP_GOAL, OVERHEAD_GAP_GOAL = 1.0, 5.0
"""Percent."""


def graph_figures(instances: Sequence[Path], time_limit_s: float, threads: int, name: str = "opt") -> list[Figure]:
    """Gap, overhead gap, and time of one run on each instance; a plan counts only if the judge finds no fault."""
    if not instances:
        return [Figure(f"{name}, gap", None, "%", None, "", f"no instance matches {PATTERN}: give one with --graph")]
    figures = []
    for instance in instances:
        try:
            figures += _instance_figures(instance, time_limit_s, threads, name)
        except InvalidInput as error:
            figures.append(Figure(f"{name}, {instance.stem}", None, "%", None, "", str(error)))
    return figures


def _instance_figures(instance: Path, time_limit_s: float, threads: int, name: str) -> list[Figure]:
    problem, sha256 = read_problem(instance)
    if not isinstance(problem, RecomputeGraphProblem):
        raise InvalidInput(f"{instance} holds a {problem.KIND} problem: give a recompute-graph problem")
    solver = build_solver(name, {})
    began = time.perf_counter()
    answer = solver.solve(problem, Limits(time_s=time_limit_s, threads=threads))
    spent = time.perf_counter() - began
    verdict = check_plan(problem, plan_file(answer, problem.KIND, sha256), sha256)
    if answer.objective is None or not verdict.clean:
        told = answer.reason if answer.objective is None else "; ".join(verdict.violations)
        return [Figure(f"{name}, {instance.stem}", None, "%", None, "", f"no clean plan in {spent:.1f} s: {told}")]
    base = answer.base or answer.objective
    about = f"{len(problem.ops)} operators, {spent:.1f} s of {time_limit_s:g} s, {threads} threads, judged clean"
    gap, overhead = _percent(answer.gap), _percent(answer.overhead_gap)
    return [
        Figure(f"{name}, {problem.name}, step", answer.objective, "µs", answer.objective / base, "unlimited", about),
        Figure(f"{name}, {problem.name}, gap", gap, "%", _over(gap, GAP_GOAL), "goal of 1 %", _to_base("objective")),
        Figure(
            f"{name}, {problem.name}, overhead gap",
            overhead,
            "%",
            _over(overhead, OVERHEAD_GAP_GOAL),
            "goal of 5 %",
            _to_base("(objective - base)"),
        ),
    ]


def shipped_instances() -> list[Path]:
    """The five budgets of the 24-layer GPT-300M."""
    return sorted(SHIPPED.glob(PATTERN))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _over(value: float | None, goal: float) -> float | None:
    return None if value is None else value / goal


def _to_base(below: str) -> str:
    return f"(objective - bound) / {below}"
