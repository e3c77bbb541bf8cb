"""How the systems of the paper's evaluation recompute, cut their pipelines, and use its stalls."""

import math
from dataclasses import dataclass
from typing import Literal

from solvers.ir.names import unknown
from solvers.ir.recompute import RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Solver
from solvers.partition.stages import Decide, Groups
from solvers.recompute.layer import (
    AdaPipe,
    Block,
    CheckmateLayer,
    Full,
    Heu,
    Layer,
    Selective,
    TooManyStates,
    Uniform,
    front_of,
)
from solvers.recompute.layer.answers import fixed_bytes, plan_bytes
from solvers.recompute.layer.policies import keep_all
from solvers.timeline.pipeline.inputs import Hide

Cut = Literal["balanced", "dp", "greedy-lynx", "fastest", "bound"]
"""`balanced`: layers as evenly as possible; `dp`, `greedy-lynx`: the least slowest stage; `fastest`: the least 1F1B
time; `bound`: the least 1F1B time if every stage met the bound of all mixes of policies."""

POLICIES: dict[str, Solver[RecomputeLayerProblem, Solution[RecomputeLayerPlan]]] = {
    "full": Full(whole=True),
    "selective": Selective(),
    "uniform": Uniform(whole=True),
    "block": Block(whole=True),
    "checkmate-layer": CheckmateLayer(),
    "adapipe": AdaPipe(),
    "heu": Heu(),
    "heu-pair": Heu(groups=2),
    "heu-mix": Heu(groups=None),
}
"""The paper's `full`, like Megatron-LM's, runs a whole layer again, what nothing depends on included."""


@dataclass(frozen=True)
class System:
    """A recomputation policy, how the layers are cut into stages, and where recomputation may start early."""

    policy: str
    cut: Cut
    hide: Hide = "none"


SYSTEMS: dict[str, System] = {
    "full": System("full", "balanced"),
    "selective": System("selective", "balanced"),
    "adapipe": System("adapipe", "dp"),
    "lynx": System("heu", "greedy-lynx", "cooldown"),
}
"""§7.1: the baselines recompute when the gradient is there; AdaPipe and Lynx cut by the stages' times."""


def decide(policy: str) -> Decide:
    """The policy as a function of a stage's problem; raises `InvalidInput` naming the nearest one."""
    if policy not in POLICIES:
        raise unknown("policy", policy, POLICIES)
    return look_up if policy == "heu" else lambda problem: _solved(policy, problem)


def look_up(problem: RecomputeLayerProblem) -> Groups | None:
    """HEU's policy without its bound: a table over all layer counts asks hundreds of times."""
    layer = Layer.of(problem)
    everything = keep_all(layer).group(problem.layers)
    if plan_bytes(problem, [everything]) <= problem.budget_bytes:
        return (everything,)  # as fast as what hides something, and the cool-down has no forward windows
    try:
        front = front_of(layer, problem.inflight_microbatches)
    except TooManyStates:
        return _solved("heu", problem)
    room = problem.budget_bytes - fixed_bytes(problem)
    choice = front.best(problem.layers, problem.inflight_microbatches, room)
    return None if choice is None else (front.policy(choice.number).group(problem.layers),)


def _solved(policy: str, problem: RecomputeLayerProblem) -> Groups | None:
    # A knapsack ends by itself: a clock must not decide what a stage's policy is where `work` is the caller's limit.
    limits = Limits(time_s=math.inf) if policy == AdaPipe.NAME else Limits()
    plan = POLICIES[policy].solve(problem, limits).plan
    return None if plan is None else plan.groups
