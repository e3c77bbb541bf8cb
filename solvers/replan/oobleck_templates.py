"""Oobleck's pipeline templates: the layers of each depth, by divide and conquer ([R] after Oobleck, SOSP 2023, 4.1)."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.memory import most_layers
from solvers.replan.estimate.pipeline import row_us
from solvers.replan.even_placements import KEPT_MODELS, Layers, model_of
from solvers.replan.progress import Stop, Stopped, never

MICROBATCHES_A_STAGE = 4
"""Templates are planned for four microbatches a stage, whatever they get later."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Template:
    """The template of a number of nodes: its layers a stage."""

    model: ReplanProblem
    layers: Layers

    @cached_property
    def row_us(self) -> NDArray[np.int64]:
        """Its step time (F5) for 0, 1, 2, … microbatches; computed once asked for, as few templates are ever used."""
        return row_us(self.model, self.layers, self.model.microbatches)

    @property
    def depth(self) -> int:
        """How many nodes it takes."""
        return len(self.layers)


@dataclass(frozen=True)
class _Part:
    """The best splits of some adjacent stages, as arrays: entry i is for one layer a stage and i more.

    `value`: T2 + T3 within these stages; `slowest`: the slowest stage's time; `total`: all stages' time. They end with
    what memory holds. Floats only rank the splits: times are computed by F5 afterwards.
    """

    value: FloatArray
    slowest: FloatArray
    total: FloatArray
    cut: NDArray[np.int64] | None = None
    left: "_Part | None" = None
    right: "_Part | None" = None

    def layers(self, more: int) -> Layers:
        """The layers of each of these stages when they hold `more` layers beyond one each."""
        if self.left is None or self.right is None or self.cut is None:
            return (1 + more,)
        first = int(self.cut[more])
        return self.left.layers(first) + self.right.layers(more - first)


@dataclass(frozen=True)
class Templates:
    """One model's templates, each computed once."""

    model: ReplanProblem
    _found: dict[int, Template | None] = field(default_factory=dict, repr=False, compare=False)
    _all: dict[int, tuple[Template, ...]] = field(default_factory=dict, repr=False, compare=False)

    def all_from(self, least: int, stop: Stop) -> tuple[Template, ...]:
        """Those of all depths from `least` on that fit; where the search has to stop, those computed by then."""
        if least not in self._all:
            depths = range(least, min(self.model.max_depth, self.model.layers) + 1)
            try:
                found = [self.of(depth, stop) for depth in depths]
            except Stopped:
                known = [self._found.get(depth) for depth in depths]
                return tuple(template for template in known if template is not None)
            self._all[least] = tuple(template for template in found if template is not None)
        return self._all[least]

    def of(self, depth: int, stop: Stop) -> Template | None:
        """The template of this depth, if any fits; `Stopped` where the search has to stop."""
        if depth not in self._found:
            split = template_layers(self.model, depth, stop)
            self._found[depth] = None if split is None else Template(self.model, split)
        return self._found[depth]


@lru_cache(maxsize=KEPT_MODELS)
def _templates(model: ReplanProblem) -> Templates:
    return Templates(model)


def templates_of(problem: ReplanProblem, least: int, stop: Stop = never) -> tuple[Template, ...]:
    """The templates of all depths from `least` on that fit, by depth; remembered between calls.

    Where the search has to stop, those computed until then, the shallowest first.
    """
    return _templates(model_of(problem)).all_from(least, stop)


def template_of(problem: ReplanProblem, depth: int, stop: Stop = never) -> Template | None:
    """The template of one depth, None where none fits; `Stopped` where the search has to stop."""
    return _templates(model_of(problem)).of(depth, stop)


def template_depths(problem: ReplanProblem, least: int) -> range:
    """The consecutive depths from `least` on for which there are templates; those beyond one without are left out."""
    last = min(problem.max_depth, problem.layers)
    first = next((depth for depth in range(least, last + 1) if _has_room(problem, depth)), last + 1)
    return range(first, next((depth for depth in range(first, last + 1) if not _has_room(problem, depth)), last + 1))


def _has_room(model: ReplanProblem, depth: int) -> bool:
    """Whether memory holds some split with a full pipeline in flight."""
    most = most_layers(model, depth, depth)
    return depth <= model.layers and min(most) >= 1 and sum(most) >= model.layers


def template_layers(model: ReplanProblem, depth: int, stop: Stop = never) -> Layers | None:
    """The split of least T1 + T2 + T3 that the recursion finds; None where none fits with a full pipeline in flight.

    T1, one microbatch through all stages, is the same for all splits. T2 = (4P − P + k − 1)·t_k with the slowest stage
    k, counted from 1; T3 = Σ of the times from stage k on. Stages are halved, and each way to share the layers
    between the halves is tried; a half keeps its best split for each number of layers. Least of all where layers are
    alike (tested); with heavy ends now and then not, up to 11 % in tiny cases. `Stopped` where it has to stop.
    """
    if stop():
        raise Stopped
    if not _has_room(model, depth):
        return None
    return _Recursion(model, depth, most_layers(model, depth, depth), stop).part(0, depth).layers(model.layers - depth)


@dataclass(frozen=True)
class _Recursion:
    """Templates' divide and conquer for one depth; `most`: the layers that each stage's memory holds."""

    model: ReplanProblem
    depth: int
    most: tuple[int, ...]
    stop: Stop

    def part(self, first: int, stages: int) -> _Part:
        """The best splits over `stages` stages from stage `first` on."""
        if stages == 1:
            return self._stage(first)
        if self.stop():
            raise Stopped
        half = stages // 2
        left, right = self.part(first, half), self.part(first + half, stages - half)
        widest = len(left.value)
        every = np.arange(min(self.model.layers - self.depth + 1, widest + len(right.value) - 1))
        value, slowest, total = (
            _shifted(table, widest, len(every)) for table in (right.value, right.slowest, right.total)
        )
        ways = np.where(left.slowest >= slowest, left.value + total, value)
        best = ways.argmin(axis=1)
        return _Part(
            value=ways[every, best],
            slowest=np.maximum(left.slowest[best], slowest[every, best]),
            total=left.total[best] + total[every, best],
            cut=best,
            left=left,
            right=right,
        )

    def _stage(self, stage: int) -> _Part:
        """One stage: 1 … `most` layers, so that each other stage is left at least one."""
        model = self.model
        count = 1 + np.arange(min(self.most[stage], model.layers - self.depth + 1), dtype=np.float64)
        time = count * (model.forward_us + model.backward_us)
        time += sum(model.first_extra_us) if stage == 0 else 0
        time += sum(model.last_extra_us) if stage == self.depth - 1 else 0
        rounds = MICROBATCHES_A_STAGE * self.depth - self.depth + stage
        return _Part(value=(rounds + 1) * time, slowest=time, total=time)


def _shifted(table: FloatArray, width: int, rows: int) -> FloatArray:
    """[row, column] → table[row − column], without copying; inf where there is no such entry."""
    padded = np.full(rows + width - 1, np.inf)
    end = min(len(table), rows)
    padded[width - 1 : width - 1 + end] = table[:end]
    return np.lib.stride_tricks.sliding_window_view(padded, width)[:, ::-1]
