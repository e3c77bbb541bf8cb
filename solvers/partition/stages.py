"""What a pipeline stage takes under a recomputation policy with n layers: time, hidden work, and memory."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from solvers.ir.pipeline import PipelineProblem
from solvers.ir.recompute import LayerGroup, LayerOp, RecomputeLayerProblem
from solvers.partition.balanced import even_split
from solvers.partition.stage_times import StageTimes, stage_times
from solvers.partition.table import UNFIT
from solvers.timeline import StageBytes, pipeline_makespan_us
from solvers.timeline.pipeline.inputs import Discipline, Hide
from solvers.timeline.pipeline.memory import hiding_fits, in_flight

Groups = tuple[LayerGroup, ...]


@dataclass(frozen=True)
class StageChoice:
    """A stage with n layers under a policy; times and bytes of one microbatch, embedding and head included.

    `forward_hidden_us` and `backward_hidden_us` are recomputed inside collectives, `critical_us` on the critical path;
    `ahead_us` of `backward_hidden_us` is what the others are computed from: ahead of the gradient they need it then,
    before its windows (but for the stage's last layer, whose come before). `exposed_us` is what of the last layer no
    window comes before, `exposed_steady_us` the same of the steady state (`Edge`). `kept_us` is the forward time of
    operators that are not computed again.
    """

    layers: int
    groups: Groups
    forward_us: int
    backward_us: int
    critical_us: int
    forward_hidden_us: int
    backward_hidden_us: int
    ahead_us: int
    exposed_us: int
    exposed_steady_us: int
    layers_us: int
    memory: StageBytes

    @property
    def cost_us(self) -> int:
        """What the partition balances: forward, backward, and recomputation on the critical path."""
        return self.forward_us + self.backward_us + self.lane_us

    @property
    def lane_us(self) -> int:
        """Recomputation on the stage's lane for a microbatch of the steady state."""
        return self.critical_us + self.exposed_steady_us

    @property
    def cool_us(self) -> int:
        """What the lane recomputes besides in the cool-down, where no forward pass comes before."""
        return self.forward_hidden_us + self.exposed_us - self.exposed_steady_us

    @property
    def kept_us(self) -> int:
        """Forward time of the layers' operators that are not computed again."""
        return self.layers_us - self.critical_us - self.forward_hidden_us - self.backward_hidden_us


Decide = Callable[[RecomputeLayerProblem], Groups | None]
"""A policy: what it does with a stage's layers, or None where that does not fit."""


@dataclass(frozen=True)
class Stages:
    """All stages of a pipeline under one policy, each with any number of layers, decided when first asked for.

    `as_printed`: as the paper counts, to whom windows are there for the last layer of a stage too, and the inputs of
    what is recomputed ahead of a gradient (`ahead_us`, `exposed_us`: 0). No program does quite as well.
    """

    problem: PipelineProblem
    decide: Decide
    as_printed: bool = False
    known: dict[tuple[int, int], StageChoice | None] = field(default_factory=dict)

    def choice(self, stage: int, layers: int) -> StageChoice | None:
        """The stage's policy; None where none of this kind fits."""
        key = stage, layers
        if key not in self.known:
            asked = layer_problem_of(self.problem, stage, layers)
            groups = self.decide(asked)
            one = None if groups is None else choice_of(self.problem, stage, asked, in_order(groups))
            if one is not None and self.as_printed:
                one = replace(one, ahead_us=0, exposed_us=0, exposed_steady_us=0)
            self.known[key] = one
        return self.known[key]

    def rows(self, most: int | None = None) -> list[list[StageChoice | None]]:
        """Every stage with 0…layers layers; None where it does not fit, or has more than `most` layers.

        `most` None: as many as any partition can give it.
        """
        count, depth = self.problem.layers, len(self.problem.stages)
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
        most = None if slowest is None or not self.layer_us else slowest // self.layer_us
        return np.array([[UNFIT if one is None else one.cost_us for one in row] for row in self.rows(most)])

    @property
    def layer_us(self) -> int:
        """One microbatch through one layer, forwards and backwards."""
        return self.problem.forward_us + self.problem.backward_us

    def even(self) -> list[StageChoice] | None:
        """The stages of the even partition; None where it does not fit."""
        count, depth = self.problem.layers, len(self.problem.stages)
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
        count = self.problem.microbatches
        step_us = pipeline_makespan_us(
            [one.forward_us for one in even],
            [one.backward_us for one in even],
            microbatches=count,
            recompute_us=[one.lane_us for one in even],
            forward_hidden_us=[one.cool_us for one in even],
            p2p_us=self.problem.p2p_us,
            how=Discipline(order=self.problem.order),
        )
        return int(step_us) // (count * self.layer_us) if self.layer_us else None

    def times(self, hide: Hide) -> StageTimes:
        """The tables of the exact search for the fastest partition."""
        rows = self.rows(self.reach())
        return times_of(self.problem, rows, hide)

    def may_hide(self, stage: int, one: StageChoice, hide: Hide) -> bool:
        """Whether the stage has the memory to recompute before the gradient arrives."""
        return may_hide(self.problem, stage, one, hide)


def times_of(problem: PipelineProblem, rows: Sequence[Sequence[StageChoice | None]], hide: Hide) -> StageTimes:
    """The tables of the search for the fastest partition; `rows[p][n]` is what stage p does with n layers."""

    def table(value: Callable[[StageChoice], int]) -> list[list[int]]:
        return [[0 if one is None else value(one) for one in row] for row in rows]

    return stage_times(
        table(lambda one: one.forward_us),
        table(lambda one: one.backward_us),
        recompute_us=table(lambda one: one.lane_us),
        forward_hidden_us=table(lambda one: one.cool_us),
        ahead_us=table(lambda one: one.ahead_us),
        may_hide=[
            [one is not None and may_hide(problem, stage, one, hide) for one in row] for stage, row in enumerate(rows)
        ],
        fits=[[one is not None for one in row] for row in rows],
    )


def may_hide(problem: PipelineProblem, stage: int, one: StageChoice, hide: Hide) -> bool:
    """Whether the stage has the memory to recompute before the gradient arrives (formats.md 15.5)."""
    others = [one.memory] * len(problem.stages)
    budget = problem.stages[stage].budget_bytes
    return hiding_fits(others, problem.microbatches, budget, hide, problem.order)[stage]


def layer_problem_of(problem: PipelineProblem, stage: int, layers: int) -> RecomputeLayerProblem:
    """What the policies of a stage with so many layers must obey (formats.md 15.2)."""
    own, depth = problem.stages[stage], len(problem.stages)
    flying = in_flight(stage, depth, problem.microbatches, problem.order)
    return RecomputeLayerProblem(
        name=f"stage {stage} of {problem.name}, {layers} layers",
        layers=layers,
        inflight_microbatches=flying,
        last_stage=stage == depth - 1,
        budget_bytes=own.budget_bytes,
        static_bytes=own.static_bytes + layers * own.layer_static_bytes + flying * own.extra_bytes,
        layer_input_bytes=problem.layer_input_bytes,
        windows=problem.windows,
        ops=problem.ops,
    )


def choice_of(problem: PipelineProblem, stage: int, asked: RecomputeLayerProblem, groups: Groups) -> StageChoice:
    """The times and bytes of a stage whose layers do this."""
    own, layers = problem.stages[stage], asked.layers
    times, sizes, working, early = _sums(asked, groups)
    edge, again = last_layer(asked, groups[-1]), problem.order == "1f1b"
    steady = edge.exposed_us if again and not edge.exchanged else 0
    return StageChoice(
        layers=layers,
        groups=groups,
        forward_us=layers * problem.forward_us + own.extra_us[0],
        backward_us=layers * problem.backward_us + own.extra_us[1],
        critical_us=times["critical"],
        forward_hidden_us=times["forward"],
        backward_hidden_us=times["backward"],
        ahead_us=times["ahead"],
        exposed_us=edge.exposed_us,
        exposed_steady_us=steady,
        layers_us=layers * problem.forward_us,
        memory=StageBytes(
            static_bytes=own.static_bytes + layers * own.layer_static_bytes,
            stored_bytes=layers * problem.layer_input_bytes + sizes["stored"] + own.extra_bytes,
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
        places = [*((i, "stored") for i in group.stored), *((i, phases[w]) for i, w in group.recomputed)]
        for i, place in [*places, *((i, "ahead") for i in came_along(problem.ops, dict(places)))]:
            own[place] += problem.ops[i].output_bytes
            times[place] += (group.layers - (place == "ahead" and group is groups[-1])) * problem.ops[i].time_us
        sizes.update({place: group.layers * size for place, size in own.items()})
        working = max(working, 2 * own["backward"] + own["critical"])
        least.append(own["critical"])
    return times, sizes, working, sizes["critical"] + sizes["forward"] - min(least)


def in_order(groups: Groups) -> Groups:
    """The groups with the most layers last: a stage's last layers go back first, when memory is fullest."""
    return tuple(sorted(groups, key=lambda group: group.layers))


@dataclass(frozen=True)
class Edge:
    """A stage's last layer, which goes back first, so that windows of the pass before serve it (formats.md 15.3).

    `exposed`: the ops of its backward windows that are computed from ops of forward windows, which come later than
    that pass, and their time; in the steady state nothing is exposed if the layer's windows may be `exchanged`.
    """

    exposed: tuple[int, ...]
    exposed_us: int
    exchanged: bool


def last_layer(problem: RecomputeLayerProblem, group: LayerGroup) -> Edge:
    """What is particular about the last layer of a stage; it is of the last group."""
    windows, ops = problem.windows, problem.ops
    place = {i: windows[w].phase if w < len(windows) else "critical" for i, w in group.recomputed}
    behind = {i for i, phase in place.items() if phase == "forward"}
    for i in sorted(place):
        if behind.intersection(ops[i].inputs):
            behind.add(i)
    exposed = tuple(i for i in sorted(behind) if place[i] == "backward")
    used = [sum(ops[i].time_us for i, at in group.recomputed if at == w) for w in range(len(windows))]
    half = sum(window.phase == "forward" for window in windows)
    pairs = range(half) if len(windows) == 2 * half else ()
    fits = all(used[w] <= windows[half + w].time_us and used[half + w] <= windows[w].time_us for w in pairs)
    return Edge(exposed, sum(ops[i].time_us for i in exposed), len(windows) == 2 * half and fits)


def came_along(ops: Sequence[LayerOp], places: Mapping[int, str]) -> list[int]:
    """Ops recomputed in backward windows from which others, recomputed elsewhere, are computed, step by step."""
    reached = {i for i, place in places.items() if place in ("critical", "forward")}
    for i in sorted(places, reverse=True):
        if i in reached and places[i] != "stored":
            reached.update(j for j in ops[i].inputs if places.get(j, "stored") != "stored")
    return sorted(i for i in reached if places[i] == "backward")
