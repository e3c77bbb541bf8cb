"""What a pipeline stage takes under a recomputation policy with so many layers: time, hidden work, and memory."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from experiments.lynx.search import Pipeline
from solvers.ir.recompute import LayerGroup, RecomputeLayerProblem
from solvers.partition import UNFIT
from solvers.partition.stage_times import StageTimes, stage_times
from solvers.timeline import StageBytes
from solvers.timeline.pipeline_input import Hide
from solvers.timeline.pipeline_memory import hiding_fits
from solvers.workload import static_bytes

Groups = tuple[LayerGroup, ...]


@dataclass(frozen=True)
class StageChoice:
    """A stage with so many layers under a policy; times and bytes of one microbatch, embedding and head included.

    `forward_hidden_us` and `backward_hidden_us` are recomputed inside collectives, `critical_us` on the critical path;
    `kept_us` is the forward time of operators that are not computed again.
    """

    layers: int
    groups: Groups
    forward_us: int
    backward_us: int
    critical_us: int
    forward_hidden_us: int
    backward_hidden_us: int
    layers_us: int
    memory: StageBytes

    @property
    def cost_us(self) -> int:
        """What the partition balances: forward, backward, and recomputation on the critical path."""
        return self.forward_us + self.backward_us + self.critical_us

    @property
    def kept_us(self) -> int:
        """Forward time of the layers' operators that are not computed again."""
        return self.layers_us - self.critical_us - self.forward_hidden_us - self.backward_hidden_us


Decide = Callable[[RecomputeLayerProblem], Groups | None]
"""A policy: what it does with a stage's layers, or None where that does not fit."""


@dataclass(frozen=True)
class Stages:
    """All stages of a pipeline under one policy, each with any number of layers, decided when first asked for."""

    pipeline: Pipeline
    decide: Decide
    known: dict[tuple[int, int], StageChoice | None] = field(default_factory=dict)

    def choice(self, stage: int, layers: int) -> StageChoice | None:
        """The stage's policy; None where none of this kind fits."""
        key = stage, layers
        if key not in self.known:
            problem = self.pipeline.heu_problem(stage, layers)
            groups = self.decide(problem)
            self.known[key] = None if groups is None else _choice(self.pipeline, stage, problem, groups)
        return self.known[key]

    def rows(self) -> list[list[StageChoice | None]]:
        """Every stage with 0…layers layers; None where it does not fit, or no partition has so many."""
        count, depth = self.pipeline.shape.layers, self.pipeline.parallelism.pipeline
        most = count - depth + 1
        return [[self.choice(stage, n) if 1 <= n <= most else None for n in range(count + 1)] for stage in range(depth)]

    def costs(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The cost table of a partition problem."""
        return np.array([[UNFIT if one is None else one.cost_us for one in row] for row in self.rows()])

    def times(self, hide: Hide) -> StageTimes:
        """The tables of the exact 1F1B search."""
        rows = self.rows()

        def table(value: Callable[[StageChoice], int]) -> list[list[int]]:
            return [[0 if one is None else value(one) for one in row] for row in rows]

        return stage_times(
            table(lambda one: one.forward_us),
            table(lambda one: one.backward_us),
            recompute_us=table(lambda one: one.critical_us),
            forward_hidden_us=table(lambda one: one.forward_hidden_us),
            may_hide=[
                [one is not None and self.may_hide(stage, one, hide) for one in row] for stage, row in enumerate(rows)
            ],
            fits=[[one is not None for one in row] for row in rows],
        )

    def may_hide(self, stage: int, one: StageChoice, hide: Hide) -> bool:
        """Whether the stage has the memory to recompute before the gradient arrives."""
        cut = self.pipeline.parallelism
        others = [one.memory] * cut.pipeline
        return hiding_fits(others, cut.microbatches, self.pipeline.budget_bytes, hide)[stage]


def _choice(pipeline: Pipeline, stage: int, problem: RecomputeLayerProblem, groups: Groups) -> StageChoice:
    cut, layers = pipeline.parallelism, problem.layers
    extras = pipeline.extras[stage]
    times, sizes, working, early = _sums(problem, groups)
    stored = layers * problem.layer_input_bytes + sizes["stored"] + sum(extra.activation_bytes for extra in extras)
    return StageChoice(
        layers=layers,
        groups=groups,
        forward_us=layers * pipeline.costs.forward_us + sum(extra.forward_us for extra in extras),
        backward_us=layers * pipeline.costs.backward_us + sum(extra.backward_us for extra in extras),
        critical_us=times["critical"],
        forward_hidden_us=times["forward"],
        backward_hidden_us=times["backward"],
        layers_us=layers * pipeline.costs.forward_us,
        memory=StageBytes(
            static_bytes=static_bytes(pipeline.shape, cut, stage, layers),
            stored_bytes=stored,
            forward_hidden_bytes=sizes["forward"],
            working_bytes=working,
            early_bytes=early,
        ),
    )


def _sums(problem: RecomputeLayerProblem, groups: Groups) -> tuple[Counter[str], Counter[str], int, int]:
    """Times and bytes by place over all layers; working bytes of one layer at a time; what doing all ahead adds."""
    phases = [*("backward" if one.phase == "stall" else one.phase for one in problem.windows), "critical"]
    times: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    working, least = 0, []
    for group in groups:
        own: Counter[str] = Counter()
        for i, place in [*((i, "stored") for i in group.stored), *((i, phases[w]) for i, w in group.recomputed)]:
            own[place] += problem.ops[i].output_bytes
            times[place] += group.layers * problem.ops[i].time_us
        sizes.update({place: group.layers * size for place, size in own.items()})
        working = max(working, 2 * own["backward"] + own["critical"])
        least.append(own["critical"])
    return times, sizes, working, sizes["critical"] + sizes["forward"] - min(least)
