"""What a pipeline stage takes under a recomputation policy with n layers: time, hidden work, and memory."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from solvers.ir.recompute import LayerGroup, RecomputeLayerProblem
from solvers.partition import UNFIT, even_split
from solvers.partition.pipeline import Pipeline
from solvers.partition.stage_times import StageTimes, stage_times
from solvers.timeline import StageBytes, pipeline_makespan_us
from solvers.timeline.pipeline.inputs import Hide
from solvers.timeline.pipeline.memory import hiding_fits
from solvers.workload import p2p_us, static_bytes

Groups = tuple[LayerGroup, ...]


@dataclass(frozen=True)
class StageChoice:
    """A stage with n layers under a policy; times and bytes of one microbatch, embedding and head included.

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

    def rows(self, most: int | None = None) -> list[list[StageChoice | None]]:
        """Every stage with 0…layers layers; None where it does not fit, or has more than `most` layers.

        `most` None: as many as any partition can give it.
        """
        count, depth = self.pipeline.shape.layers, self.pipeline.parallelism.pipeline
        possible = count - depth + 1
        limit = possible if most is None else min(most, possible)
        return [
            [self.choice(stage, n) if 1 <= n <= limit else None for n in range(count + 1)] for stage in range(depth)
        ]

    def costs(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The cost table of a partition problem; what is slower than the even partition's slowest stage is left out.

        No better partition, nor the loop that starts from the even one, ever gives a stage more layers than this.
        """
        even = self.even()
        slowest = None if even is None else max(one.cost_us for one in even)
        most = None if slowest is None else slowest // self.layer_us
        return np.array([[UNFIT if one is None else one.cost_us for one in row] for row in self.rows(most)])

    @property
    def layer_us(self) -> int:
        """One microbatch through one layer, forwards and backwards."""
        return self.pipeline.costs.forward_us + self.pipeline.costs.backward_us

    def even(self) -> list[StageChoice] | None:
        """The stages of the even partition; None where it does not fit."""
        count, depth = self.pipeline.shape.layers, self.pipeline.parallelism.pipeline
        if count < depth:
            return None
        chosen = [self.choice(stage, n) for stage, n in enumerate(even_split(count, depth))]
        fitting = [one for one in chosen if one is not None]
        return fitting if len(fitting) == depth else None

    def reach(self) -> int | None:
        """So many layers at most has a stage of the fastest partition; None where nothing is known.

        A stage's lane is busy for microbatches·layers·(forward + backward), which the even partition's step bounds.
        """
        even = self.even()
        if even is None:
            return None
        cut = self.pipeline.parallelism
        step_us = pipeline_makespan_us(
            [one.forward_us for one in even],
            [one.backward_us for one in even],
            microbatches=cut.microbatches,
            recompute_us=[one.critical_us for one in even],
            forward_hidden_us=[one.forward_hidden_us for one in even],
            p2p_us=p2p_us(self.pipeline.shape, cut, self.pipeline.machine),
        )
        return int(step_us) // (cut.microbatches * self.layer_us)

    def times(self, hide: Hide) -> StageTimes:
        """The tables of the exact 1F1B search."""
        rows = self.rows(self.reach())

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
