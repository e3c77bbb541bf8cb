"""How few swaps any policy can do with where each costs the host two launches: a bound for the tables."""

import numpy as np

from runtime.device import sim_hardware
from runtime.profile import profile_step
from solvers.ir.graph import OpGraph
from solvers.swap.make import make_swap_problem
from solvers.timeline.residents import residents_leaving
from tests.runtime.swap.sizes.programs import PROGRAMS
from tests.runtime.swap.sizes.trials import LATE, SHARE, STEPS, plain, ready


def least_swaps(program: str) -> tuple[float, float]:
    """Swaps a step at least, on average of the last steps, and the share of its time that launching them takes."""
    without = plain(program, launches=True)
    budget = int(SHARE * without.peak_bytes)
    device = ready(launches=True)
    running = PROGRAMS[program](device)
    for _ in range(STEPS - LATE):
        running.step()
    graphs = [profile_step(running.step, device, warmup=0) for _ in range(LATE)]
    swaps = sum(_at_least(graph, budget) for graph in graphs) / LATE
    return swaps, swaps * 2 * sim_hardware().devices[0].launch_us / (without.late_us / LATE)


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
