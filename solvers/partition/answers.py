"""What every solver of this room answers alike: a plan with its exact cost, or why there is none."""

import time
from collections.abc import Sequence

from solvers.ir.partition import PartitionPlan
from solvers.ir.solution import Limits, Solution, Status
from solvers.partition.table import UNFIT, IntArray, costs_of


def with_plan(
    solver: str,
    costs: IntArray,
    layers: Sequence[int],
    limits: Limits,
    began: float,
    bound: int | None = None,
    engine: str | None = None,
    reason: str | None = None,
) -> Solution[PartitionPlan]:
    """A partition that fits; OPTIMAL where the bound meets its cost."""
    objective = int(costs_of(costs, layers).max())
    return Solution(
        status=Status.OPTIMAL if bound == objective else Status.FEASIBLE,
        plan=PartitionPlan(layers=tuple(int(count) for count in layers)),
        solver=solver,
        engine=engine,
        objective=objective,
        bound=bound,
        reason=reason,
        seed=limits.seed,
        solve_time_s=time.perf_counter() - began,
    )


def without_plan(
    solver: str, status: Status, reason: str, limits: Limits, began: float, bound: int | None = None
) -> Solution[PartitionPlan]:
    """INFEASIBLE with its proof's sentence, or UNKNOWN."""
    return Solution(
        status=status,
        plan=None,
        solver=solver,
        bound=bound,
        reason=reason,
        seed=limits.seed,
        solve_time_s=time.perf_counter() - began,
    )


def stuck_or_infeasible(
    solver: str, costs: IntArray, layers: Sequence[int], limits: Limits, began: float
) -> Solution[PartitionPlan]:
    """A heuristic's answer without a plan: INFEASIBLE where that is proven, else UNKNOWN and where it got stuck."""
    proof = why_infeasible(costs)
    if proof is not None:
        return without_plan(solver, Status.INFEASIBLE, proof, limits, began)
    unfit = next(stage for stage, cost in enumerate(costs_of(costs, layers)) if cost >= UNFIT)
    counts = ", ".join(map(str, layers))
    reason = f"stuck at {counts} layers, where stage {unfit} does not fit; a partition that fits exists: use dp"
    return without_plan(solver, Status.UNKNOWN, reason, limits, began)


def why_infeasible(costs: IntArray) -> str | None:
    """Why no partition fits, in a sentence; None where one does. The proof is the set of sums that are reachable."""
    stages, layers = costs.shape[0], costs.shape[1] - 1
    most = layers - stages + 1
    if most < 1:
        return f"{layers} layers cannot fill {stages} stages with one each: take at most {layers} stages"
    fitting = [[n for n in range(1, most + 1) if row[n] < UNFIT] for row in costs.tolist()]
    for stage, counts in enumerate(fitting):
        if not counts:
            what = f"none of 1…{most} layers fits stage {stage}: cost_us[{stage}] is null there"
            return f"{what}; recompute more, or give it more memory"
    together, least = sum(counts[-1] for counts in fitting), sum(counts[0] for counts in fitting)
    if together < layers:
        return f"the stages fit at most {together} layers together, of {layers}: add stages or memory"
    if least > layers:
        return f"the stages take at least {least} layers together, but there are {layers}: let fewer layers fit too"
    reached = 1
    for counts in fitting:
        sums = 0
        for n in counts:
            sums |= reached << n
        reached = sums & ((1 << (layers + 1)) - 1)
    if not reached >> layers & 1:
        return f"no choice of the layer counts that fit adds up to {layers} layers: let more counts fit"
    return None
