"""`bayplan`: the fastest whole step that is found, beside a bound on every step (README, W)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import get_args

import msgspec
import numpy as np

from solvers.ir.pipeline import PipelinePlan, PipelineProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.partition.bounds import best_possible, fastest_of
from solvers.partition.menus import Menus
from solvers.partition.policies import System, look_up
from solvers.partition.stage_times import StageTimes
from solvers.partition.stages import StageChoice, Stages, may_hide, times_of
from solvers.partition.steps import PlannedStep, planned
from solvers.partition.whole import found, proven_infeasible, with_base
from solvers.timeline.pipeline.inputs import Discipline, Hide
from solvers.timeline.pipeline.times import pipeline_makespan_us

BAND = 1
"""Layers more or fewer than a stage has that its neighbours are looked at with."""
ROUNDS = 6
"""Rounds of partitions and policies in turn, at most."""
Layers = tuple[int, ...]


@dataclass(frozen=True)
class Bayplan:
    """Partition, policies of every stage and the use of stalls together.

    The fastest partitions of HEU's stages and of the bound's are improved: each stage takes the best of its menu
    (one policy, mixes of two, with and without forward windows), then the layers move, until neither helps.
    OPTIMAL where the bound is met; the bound holds for every partition, mix of policies and use of stalls.
    """

    rounds: int = ROUNDS
    NAME = "bayplan"

    def solve(self, problem: PipelineProblem, limits: Limits, watch: Watch | None = None) -> Solution[PipelinePlan]:
        """The best step that is found; INFEASIBLE with the least budget where nothing fits."""
        call = Call(self.NAME, limits)
        refused = proven_infeasible(call, problem)
        if refused is not None:
            return refused
        search = _Search(problem, call, watch, limits)
        limit = best_possible(problem, "all", search.left())
        call = with_base(call, problem)
        search.bound = None if limit.bound_us is None else max(limit.bound_us, call.base or 0)
        for hide in get_args(Hide)[::-1]:
            for start in search.starts(hide, limit.layers):
                search.improve(start, hide, self.rounds)
        best = search.best
        if best is None:
            return call.unknown(search.stopped or "no policy that was tried fits: give more time", search.bound)
        bound = None if search.bound is None else min(search.bound, best.makespan_us)
        return found(call, best, bound, search.stopped)


@dataclass
class _Search:
    """One call: the best step so far, and when to stop."""

    problem: PipelineProblem
    call: Call
    watch: Watch | None
    limits: Limits
    bound: int | None = None
    best: PlannedStep | None = None
    stopped: str | None = None
    menus: Menus = field(init=False)
    heu: Stages = field(init=False)

    def __post_init__(self) -> None:
        self.menus = Menus(self.problem, self.limits)
        self.heu = Stages(self.problem, look_up)

    def left(self) -> Limits:
        """The limits with the time that is left."""
        return msgspec.structs.replace(self.limits, time_s=max(0.0, self.call.left_s))

    def is_over(self) -> bool:
        """Whether the bound is met, the gap small enough, the time up, or the watch says so."""
        objective = None if self.best is None else self.best.makespan_us
        if objective is not None and self.bound is not None:
            met = objective <= self.bound
            if met or (self.limits.gap and objective - self.bound <= self.limits.gap * objective):
                return True
        if self.stopped is None:
            told = None if objective is None else float(objective)
            known = None if self.bound is None else float(self.bound)
            if self.watch is not None and self.watch(told, known, self.call.elapsed_s):
                self.stopped = "its watch ended the search"
            elif self.call.left_s < 0:
                self.stopped = f"the time limit of {self.limits.time_s} s ended the search"
        return self.stopped is not None and self.best is not None

    def starts(self, hide: Hide, of_bound: Layers | None) -> list[Layers]:
        """Where to begin: HEU's fastest partition, and the one that the bound prefers."""
        if self.is_over():
            return []
        fastest = fastest_of(self.problem, self.heu.times(hide), hide, self.left()).layers
        return [*dict.fromkeys(start for start in (fastest, of_bound) if start is not None)]

    def improve(self, layers: Layers, hide: Hide, rounds: int) -> None:
        """Policies for the partition, then the partition for such policies, until the step stays as it is."""
        seen: set[Layers] = set()
        for _ in range(rounds):
            if layers in seen or self.is_over():
                return
            seen.add(layers)
            before = math.inf if self.best is None else self.best.makespan_us
            self._choose(layers, hide)
            if self.best is not None and seen != {layers} and self.best.makespan_us >= before:
                return
            moved = fastest_of(self.problem, self._band(layers, hide), hide, self.left()).layers
            if moved is None:
                return
            layers = moved

    def _choose(self, layers: Layers, hide: Hide) -> None:
        """The best choice of each stage in turn, the others as they are, until none helps."""
        menus = [self.menus.of(stage, n) for stage, n in enumerate(layers)]
        if not all(menus):
            return
        chosen, best = [menu[0] for menu in menus], math.inf
        while not self.is_over():
            for stage, menu in enumerate(menus):
                steps = self._steps_us([[*chosen[:stage], one, *chosen[stage + 1 :]] for one in menu], hide)
                chosen[stage] = menu[int(np.argmin(steps))]
                now = int(steps.min())
            if now >= best:
                break
            best = now
        step = planned(self.problem, System("mixed", "fastest", hide), chosen)
        if self.best is None or step.makespan_us < self.best.makespan_us:
            self.best = step

    def _steps_us(self, candidates: Sequence[Sequence[StageChoice]], hide: Hide) -> "np.typing.NDArray[np.int64]":
        def table(value: Callable[[StageChoice], int]) -> list[list[int]]:
            return [[value(one) for one in row] for row in candidates]

        may = [[may_hide(self.problem, stage, one, hide) for stage, one in enumerate(row)] for row in candidates]
        ahead = table(lambda one: one.ahead_us)
        return pipeline_makespan_us(
            table(lambda one: one.forward_us),
            table(lambda one: one.backward_us),
            microbatches=self.problem.microbatches,
            recompute_us=table(lambda one: one.lane_us),
            forward_hidden_us=table(lambda one: one.cool_us),
            p2p_us=self.problem.p2p_us,
            how=Discipline(order=self.problem.order, hide_in_stalls=hide, may_hide=may, ahead_us=ahead),
        )

    def _band(self, layers: Layers, hide: Hide) -> StageTimes:
        """The tables of partitions near this one, each stage with the first choice of its menu."""
        depth, count = len(layers), self.problem.layers
        rows: list[list[StageChoice | None]] = [[None] * (count + 1) for _ in range(depth)]
        for stage, own in enumerate(layers):
            for n in range(max(1, own - BAND), min(count - depth + 1, own + BAND) + 1):
                if n != own and self.is_over():
                    continue
                menu = self.menus.of(stage, n)
                rows[stage][n] = menu[0] if menu else None
        return times_of(self.problem, rows, hide)
