"""What every policy may ask of the cluster: how it begins, how long a step takes, how worth-while a change is."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import msgspec

from solvers.ir import InvalidInput, Limits, ReplanPlan, ReplanProblem, Solution, Solver
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.cluster.setting import MICROSECONDS, ClusterSetting
from solvers.replan.cluster.state import Placed, Running
from solvers.replan.estimate.objective import step_us
from solvers.replan.symmetric import Symmetric

Split = tuple[tuple[int, ...], int]
"""A pipeline without nodes: layers per stage, microbatches."""


class Planner(Solver[ReplanProblem, Solution[ReplanPlan]], Protocol):
    """A solver of this room; its answers are remembered."""

    def __hash__(self) -> int:
        """By its parameters."""
        ...


class Cluster:
    """The setting, and what follows from it alone; results are kept by structure, for all runs of a process."""

    def __init__(self, setting: ClusterSetting) -> None:
        self.setting = setting

    @property
    def problem(self) -> ReplanProblem:
        """The model and the whole cluster."""
        return self.setting.problem

    def initial(self, alive: frozenset[int]) -> Running:
        """D pipelines of P stages on the first nodes, the others idle; nothing runs where they are too few.

        `InvalidInput` where memory fits no pipeline of that depth.
        """
        nodes = self.setting.depth * self.setting.data_parallel
        splits = self.grid(nodes)
        if splits is None:
            raise InvalidInput(
                f"no pipeline of depth {self.setting.depth} fits a node's {self.problem.memory_bytes} bytes: "
                "raise depth or memory_bytes"
            )
        return self.on(sorted(alive), splits) if len(alive) >= nodes else Running((), alive, None)

    def grid(self, nodes: int, depth: int | None = None) -> tuple[Split, ...] | None:
        """As many alike pipelines of this depth (None: the setting's) as the nodes give; None: none, or none fits."""
        return _grid(self.problem, nodes, depth or self.setting.depth)

    def on(self, nodes: list[int], splits: Sequence[Split]) -> Running:
        """The pipelines on the nodes in order, whatever these hold; the nodes left over stand idle."""
        pipelines, at = [], 0
        for layers, microbatches in splits:
            pipelines.append(Placed(layers, tuple(nodes[at : at + len(layers)]), microbatches))
            at += len(layers)
        return Running(tuple(pipelines), frozenset(nodes[at:]), self.step_us(splits))

    def step_us(self, splits: Sequence[Split]) -> int:
        """T_step by F5 and the synchronization; it depends on which kinds of pipelines there are, not on how many."""
        kinds = tuple(sorted(set(splits)))
        return _step_us(self.problem, kinds * 2 if len(kinds) == 1 < len(splits) else kinds)

    def restart_us(self, own_us: int | None) -> int:
        """The fixed part of a transition: a policy's own, or the setting's."""
        return self.setting.restart_us if own_us is None else own_us

    def stage_static_bytes(self, layers: tuple[int, ...], stage: int) -> int:
        """What a node of the stage must hold to train it: parameters, gradients and optimizer states."""
        problem = self.problem
        first = problem.first_static_bytes if stage == 0 else 0
        last = problem.last_static_bytes if stage == len(layers) - 1 else 0
        return layers[stage] * problem.layer_static_bytes + first + last

    def transfer_us(self, size_bytes: int) -> int:
        """The time to send or receive these bytes, rounded up; 0 where the setting counts no transfers."""
        rate = self.setting.bytes_per_s
        return 0 if rate is None else -(-size_bytes * MICROSECONDS // rate)

    def splits(self, planner: Planner, nodes: int, degree: int) -> tuple[Split, ...] | None:
        """The pipelines that the planner makes of `nodes` nodes, without regard to where states are; None: it has none.

        `degree` is the number of pipelines before, around which Algorithm 1 searches.
        """
        around = max(1, degree) if isinstance(planner, Algorithm1) else None
        return None if nodes < 1 else _splits(self.problem, planner, nodes, around)

    def value(self, step_us: int, lost_us: int, alive: int) -> Fraction:
        """F2 without the constant B: (1 − T_trans/τ) / T_step, 0 where the transition outlasts τ."""
        interval_us = self.setting.interval_us(alive)
        share = Fraction(1) if interval_us is None else Fraction(max(interval_us - lost_us, 0), interval_us)
        return share / step_us


@lru_cache(maxsize=65536)
def _splits(problem: ReplanProblem, planner: Planner, nodes: int, degree: int | None) -> tuple[Split, ...] | None:
    whole = msgspec.structs.replace(problem, nodes=nodes, data_parallel=degree)
    plan = planner.solve(whole, Limits()).plan
    return None if plan is None else tuple((pipeline.layers, pipeline.microbatches) for pipeline in plan.pipelines)


@lru_cache(maxsize=4096)
def _step_us(problem: ReplanProblem, splits: tuple[Split, ...]) -> int:
    return step_us(problem, splits)


@lru_cache(maxsize=4096)
def _grid(problem: ReplanProblem, nodes: int, depth: int) -> tuple[Split, ...] | None:
    return Symmetric().grid(problem, nodes, depth)
