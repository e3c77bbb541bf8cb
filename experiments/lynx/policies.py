"""How the systems of the paper's evaluation recompute, cut their pipelines, and use its stalls."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from experiments.lynx.stages import Decide, Groups
from solvers.ir.names import unknown
from solvers.ir.recompute import LayerGroup, RecomputeLayerProblem
from solvers.recompute.layer import Layer, front_of
from solvers.recompute.layer.answers import fixed_bytes, plan_bytes
from solvers.recompute.layer.policies import on_critical_path
from solvers.timeline.pipeline_input import Hide

Cut = Literal["balanced", "dp", "greedy-lynx", "fastest"]
"""Balanced: layers as evenly as possible; dp and greedy-lynx: the slowest stage; fastest: the 1F1B time."""
ATTENTION_CORE = ("scores", "softmax", "attention dropout")


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
    return POLICIES[policy]


def heu(problem: RecomputeLayerProblem) -> Groups | None:
    """HEU's policy without its bound: a table over all layer counts asks hundreds of times."""
    front = front_of(Layer.of(problem), problem.inflight_microbatches)
    room = problem.budget_bytes - fixed_bytes(problem)
    choice = front.best(problem.layers, problem.inflight_microbatches, room)
    return None if choice is None else (front.policy(choice.number).group(problem.layers),)


def full(problem: RecomputeLayerProblem) -> Groups | None:
    """Only layer inputs are kept, and the whole layer runs again, operators that nobody reads included (Megatron)."""
    everything = tuple((i, len(problem.windows)) for i in range(len(problem.ops)))
    return _if_fits(problem, LayerGroup(layers=problem.layers, stored=(), recomputed=everything))


def selective(problem: RecomputeLayerProblem) -> Groups | None:
    """All outputs are kept but those of the attention core."""
    kept = [i for i, op in enumerate(problem.ops) if op.needed and op.name not in ATTENTION_CORE]
    return _if_fits(problem, on_critical_path(Layer.of(problem), kept).group(problem.layers))


def adapipe(problem: RecomputeLayerProblem) -> Groups | None:
    """The least recomputation that fits, all of it on the critical path."""
    found = heu(msgspec.structs.replace(problem, windows=()))
    if found is None:
        return None
    again = tuple((i, len(problem.windows)) for i, _ in found[0].recomputed)
    return (msgspec.structs.replace(found[0], recomputed=again),)


def least_bytes(problem: RecomputeLayerProblem) -> int:
    """The least budget under which any policy fits."""
    front = front_of(Layer.of(problem), problem.inflight_microbatches)
    return fixed_bytes(problem) + front.least_memory(problem.layers, problem.inflight_microbatches)


def _if_fits(problem: RecomputeLayerProblem, group: LayerGroup) -> Groups | None:
    return (group,) if plan_bytes(problem, [group]) <= problem.budget_bytes else None


POLICIES: dict[str, Decide] = {"full": full, "selective": selective, "adapipe": adapipe, "heu": heu}
