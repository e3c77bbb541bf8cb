"""Pairs of runs with deterministic work, the second beside processes that only burn time: are the answers the same?"""

import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from experiments.graphs.names import SHIPPED, by_name
from solvers.ir.codec import plan_file, plan_to_raw, read_problem
from solvers.ir.problem import Problem
from solvers.ir.solution import Limits
from solvers.planner import build_solver

GRAPHS = ("layered-30-s0@.4", "wide-30-s1@.5", "tree-40-s2@.3", "transformer-40-s3@.5")
PAIRS = (
    *((solver, graph, 0.1) for solver in ("opt", "opt-intervals", "opt-milp", "checkmate") for graph in GRAPHS),
    ("milp-swap", "swap-llama2-32l.json", 0.2), ("exact-replan", "replan-32-to-24-tp8.json", 1.0),
    ("dp", "partition-8s-32l.json", 1.0), ("exact-layout", "layout-gpt2-10b-3090.json", 0.2),
)  # fmt: skip
"""20 of a solver, an instance, and its work."""
BURN = "while True: pass"


def pairs(known: Collection[tuple[str, str]] = ()) -> Iterator[dict[str, Any]]:
    """A row for each pair but those of a solver and an instance that are `known`."""
    for solver, name, work in PAIRS:
        if (solver, name) in known:
            continue
        problem: Problem = read_problem(SHIPPED / name)[0] if name.endswith(".json") else by_name(name)
        calm, calm_s = _answer(solver, problem, work)
        with burning(os.cpu_count() or 1):
            busy, busy_s = _answer(solver, problem, work)
        yield {"solver": solver, "instance": name, "work": work, "same": calm == busy, "status": calm["status"],
               "calm_s": round(calm_s, 2), "busy_s": round(busy_s, 2)}  # fmt: skip


def _answer(solver: str, problem: Problem, work: float) -> tuple[dict[str, Any], float]:
    """The plan file as JSON but for its time, and the time."""
    began = time.perf_counter()
    found = build_solver(solver, {}).solve(problem, Limits(work=work))
    spent = time.perf_counter() - began
    raw = plan_to_raw(plan_file(found, problem.KIND, None))
    return {key: value for key, value in raw.items() if key != "solve_time_s"}, spent


@contextmanager
def burning(count: int) -> Iterator[None]:
    """So many processes take all the time that they are given."""
    running = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
