"""How few swaps any policy can do with where each costs the host two launches: a bound for the tables."""

from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from runtime.device import sim_hardware
from runtime.profile import profile_step
from solvers.ir.graph import OpGraph
from solvers.swap.make import make_swap_problem
from solvers.timeline.residents import residents_leaving
from solvers.timeline.shares import STAYING
from tests.runtime.swap.sizes.programs import PROGRAMS
from tests.runtime.swap.sizes.trials import LATE, SHARE, STEPS, plain, ready

Reach = Literal["step", "end", "next"]


def least_swaps(program: str) -> tuple[float, float]:
    """Swaps a step at least, on average of the last steps, and the share of its time that launching them takes."""
    graphs, budget, step_us = _late_steps(program)
    swaps = sum(_at_least(graph, budget) for graph in graphs) / LATE
    return swaps, swaps * 2 * sim_hardware().devices[0].launch_us / step_us


def least_by_gaps(program: str) -> dict[Reach, tuple[float, float]]:
    """Launches a step (microseconds) at least where any tensor may leave in any of its gaps, and their share of a step.

    Gaps are between two uses in one step; with the `end`, also behind the last one; or through it, to the `next` use.
    The smallest set that frees enough at all operators of each step, by HiGHS's bound.
    """
    graphs, budget, step_us = _late_steps(program)
    launch_us, known, found = sim_hardware().devices[0].launch_us, dict[tuple[Reach, OpGraph], float](), {}
    for reach in get_args(Reach):
        for graph in graphs:
            key = (reach, graph)
            known[key] = known[key] if key in known else launch_us * _launches_at_least(graph, budget, reach)
        mean_us = sum(known[reach, graph] for graph in graphs) / LATE
        found[reach] = mean_us, mean_us / step_us
    return found


def _late_steps(program: str) -> tuple[list[OpGraph], int, float]:
    """The last steps of a program, its budget, and how long such a step takes (microseconds)."""
    without = plain(program, launches=True)
    device = ready(launches=True)
    running = PROGRAMS[program](device)
    for _ in range(STEPS - LATE):
        running.step()
    graphs = [
        profile_step(running.step, device, warmup=0, model=running.model, optimizer=running.optimizer)
        for _ in range(LATE)
    ]
    return graphs, int(SHARE * without.peak_bytes), without.late_us / LATE


def _launches_at_least(graph: OpGraph, budget: int, reach: Reach) -> float:
    """What leaves in one step and returns in the next is launched once in each."""
    need = np.asarray(graph.memory_bytes, dtype=np.float64) - budget
    short = np.flatnonzero(need > 0)
    gaps = [(size, begin, end, cost) for size, begin, end, cost in _gaps(graph, reach) if begin + 1 < end]
    if not short.size:
        return 0.0
    sizes = np.array([size for size, *_ in gaps], dtype=np.float64)
    away = np.array([(begin < short) & (short < end) for _, begin, end, _ in gaps])
    frees = away.T * sizes
    enough = np.minimum(need[short], frees.sum(axis=1))
    answer = milp(
        [cost for *_, cost in gaps],
        constraints=LinearConstraint(frees / 1024, enough / 1024, np.inf),
        integrality=np.ones(len(gaps), dtype=np.int64),
        bounds=Bounds(0, 1),
        options={"time_limit": 20.0},
    )
    return float(answer.mip_dual_bound or 0.0)


def _gaps(graph: OpGraph, reach: Reach) -> list[tuple[int, int, int, int]]:
    """Bytes, ops between which a tensor waits, and launches in this step."""
    count, found = len(graph.ops), []
    for tensor in graph.tensors:
        size = graph.block_bytes(tensor)
        touched = sorted({*tensor.uses, *(() if tensor.born is None else (tensor.born,))})
        found += [(size, begin, end, 2) for begin, end in pairwise(touched)]
        stays = tensor.born is None or tensor.kind in STAYING
        if touched and stays and reach != "step":
            found.append((size, touched[-1], count - 1, 2) if reach == "end" else (size, touched[-1], count, 1))
        if touched and tensor.born is None and reach == "next":
            found.append((size, -1, touched[0], 1))
    return found


def _at_least(graph: OpGraph, budget: int) -> int:
    """At its worst operator: so many of the largest activations, parameters and states that wait there free enough."""
    waiting = make_swap_problem(residents_leaving(graph, 0), sim_hardware(), budget).tensors
    worst = 0
    for op, held in enumerate(graph.memory_bytes):
        if held > budget:
            sizes = [tensor.bytes for tensor in waiting if tensor.last_forward_use < op < tensor.first_backward_use]
            freed = np.cumsum(sorted(sizes, reverse=True))
            worst = max(worst, min(int(np.searchsorted(freed, held - budget)) + 1, len(sizes)))
    return worst
