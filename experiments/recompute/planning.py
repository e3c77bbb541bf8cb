"""From a measured layer to the policies of all blocks, by a solver; and what happens with wrong times."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.recompute.settings import EVERYTHING, NOTHING, RecomputeSettings, parse_policy
from experiments.recompute.step_log import StepLog
from runtime.recompute.layer import Layer, policy_of
from runtime.recompute.policy import BlockPolicy, store_everything, store_nothing
from solvers.ir import Limits
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.ir.solution import Solution
from solvers.planner import build_solver, solve


@dataclass(frozen=True)
class Planned:
    """The policy of each block; the solver's answer and its problem, where a solver was asked. None: no plan fits."""

    policies: tuple[BlockPolicy, ...] | None
    solution: Solution[Any] | None = None
    problem: RecomputeLayerProblem | None = None


def alike(log: StepLog) -> Layer:
    """The layer that stands for all: the middle one."""
    return log.layers[len(log.layers) // 2]


def budget_of(settings: RecomputeSettings, peak_bytes: int) -> int:
    """The budget in bytes, a share of the peak of training that keeps everything."""
    return round(settings.budget_share * peak_bytes)


def plan_blocks(spec: str, layer: Layer, log: StepLog, settings: RecomputeSettings, peak_bytes: int) -> Planned:
    """A policy for each block; `peak_bytes` is that of a step that keeps everything, hence what is not the blocks'."""
    blocks = len(log.layers)
    if spec in (EVERYTHING, NOTHING):
        return Planned(tuple((store_everything if spec == EVERYTHING else store_nothing)(blocks)))
    inflight = settings.inflight
    kept = inflight * blocks * (layer.input_bytes + sum(unit.bytes for unit in layer.units if unit.saved))
    problem = layer.problem(
        layers=blocks,
        inflight=inflight,
        last_stage=inflight == 1,  # no other microbatch's forward pass stands between a forward and its backward pass
        budget_bytes=budget_of(settings, peak_bytes),
        static_bytes=max(0, peak_bytes - kept),
    )
    name, parameters = parse_policy(spec)
    solution: Solution[Any] = solve(build_solver(name, parameters), problem, Limits()).solution
    if solution.plan is None:
        return Planned(None, solution, problem)
    groups = [policy_of(layer, group) for group in solution.plan.groups for _ in range(group.layers)]
    return Planned(tuple(groups), solution, problem)


def with_wrong_times(layer: Layer, wrong: float, seed: int) -> Layer:
    """The layer as a bad profile has it: each operator's and wait's time off by its own factor, up to 1 + wrong."""
    dice = random.Random(seed)

    def factor() -> float:
        return float((1 + wrong) ** dice.uniform(-1, 1))

    by_nodes: Mapping[tuple[int, ...], float] = {unit.nodes: factor() for unit in layer.units}
    return replace(
        layer,
        units=tuple(replace(unit, time_us=unit.time_us * by_nodes[unit.nodes]) for unit in layer.units),
        forward_waits_us=tuple(wait * factor() for wait in layer.forward_waits_us),
        backward_waits_us=tuple(wait * factor() for wait in layer.backward_waits_us),
    )
