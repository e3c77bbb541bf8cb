"""What every solver of this room answers alike: a plan with its exact cost, or why there is none."""

from collections.abc import Sequence

from solvers.ir.partition import PartitionPlan
from solvers.ir.solution import Call, Solution
from solvers.partition.table import UNFIT, IntArray, costs_of


def with_plan(
    call: Call,
    costs: IntArray,
    layers: Sequence[int],
    bound: int | None = None,
    engine: str | None = None,
    reason: str | None = None,
) -> Solution[PartitionPlan]:
    """A partition that fits; OPTIMAL where the bound meets its cost."""
    plan = PartitionPlan(layers=tuple(int(count) for count in layers))
    return call.found(plan, int(costs_of(costs, layers).max()), bound, reason, engine=engine)


def stuck_or_infeasible(call: Call, costs: IntArray, layers: Sequence[int]) -> Solution[PartitionPlan]:
    """A heuristic's answer without a plan: INFEASIBLE where that is proven, else UNKNOWN and where it got stuck."""
    proof = why_infeasible(costs)
    if proof is not None:
        return call.infeasible(proof)
    unfit = next(stage for stage, cost in enumerate(costs_of(costs, layers)) if cost >= UNFIT)
    counts = ", ".join(map(str, layers))
    return call.unknown(
        f"stuck at {counts} layers, where stage {unfit} does not fit; a partition that fits exists: use dp"
    )


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
