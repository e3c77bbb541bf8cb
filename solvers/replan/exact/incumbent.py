"""The best plan that re-plans, and the judging of others: their nodes, what they move, and whether they are better."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

import msgspec

from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.replan.estimate.objective import Split, stretched_us
from solvers.replan.exact.kept import counted_exactly
from solvers.replan.exact.steps import StepTimes
from solvers.replan.exact.wholes import Whole
from solvers.replan.progress import GRACE_S, Progress
from solvers.replan.transfer.restore import Restored, Restorer

_ALIKE_US, _ON_HOSTS_US, _PRICED_US = (5, 2), (36, 8), (2, 1)
"""About what choosing nodes takes for each stage and each transfer; where hosts matter; where prices have chosen."""
_EXCHANGE_US = 60
"""About what each exchange of stages takes that is looked at."""
_FIRST_S = 2.0
"""Seconds behind the limits in which the nodes of the first plan may still be chosen."""
_LAST = 0.85
"""Share of the effort after which nodes are no longer chosen where hosts matter, as that takes long."""


@dataclass
class Replanned:
    """The best plan found that re-plans; `objective_us` is at first what it has to beat (None: nothing).

    `impossible`: it is proven that nothing can be re-planned.
    """

    objective_us: int | None
    plan: ReplanPlan | None = None
    impossible: bool = False


class Incumbent:
    """The best plan of one search, and what its objective leaves to others: T_step, and the busiest node's load."""

    def __init__(self, problem: ReplanProblem, steps: StepTimes, progress: Progress) -> None:
        self.problem, self.steps, self.progress = problem, steps, progress
        self.restart_us, self.interval_us = problem.restart_us or 0, problem.expected_interval_us or 0
        self.restorer = Restorer(problem, stop=steps.stop)
        self.best, self.enough_us = Replanned(progress.incumbent_us), Fraction(self.interval_us)
        self.splits = dict[tuple[int, ...], None]()
        """Those of pipelines that were judged, and of mixtures that prices left."""
        self._known = dict[tuple[tuple[int, ...], ...], Restored]()
        self._placed = set[tuple[int, tuple[tuple[int, ...], ...]]]()

    @property
    def objective_us(self) -> int | None:
        """The best known, which another plan has to beat."""
        return self.best.objective_us

    @property
    def on_hosts(self) -> bool:
        """Whether links are of two rates."""
        return self.restorer.topology.nodes_per_host > 1

    def over(self) -> bool:
        """Whether no more is asked: what is proven by then stands."""
        return self.steps.stop() or self.steps.effort.over()

    def too_late_to_place(self) -> bool:
        """Whether so much of the effort is spent that nodes on hosts are no longer chosen."""
        return self.on_hosts and self.steps.effort.over(_LAST)

    def beaten(self, objective_us: int | None) -> bool:
        """Whether a plan is known that is as good."""
        if objective_us is None:
            return True
        return self.objective_us is not None and objective_us >= self.objective_us

    def lost_us(self, load_bytes: int) -> Fraction:
        """What is lost where the busiest node receives or sends so many bytes."""
        return self.taken_us(load_bytes * self.restorer.topology.least_price)

    def taken_us(self, load: int) -> Fraction:
        """What is lost with this load of the busiest node."""
        return self.restart_us + self.restorer.topology.time_us(load)

    def cutoff_us(self, lost_us: Fraction, objective: int | None = None) -> int | None:
        """The least T_step that, with such a transition, is no better than the best plan, or than this objective."""
        objective = self.objective_us if objective is None else objective
        if objective is None:
            return None
        return int((objective - 1) * (self.interval_us - lost_us) / self.interval_us) + 1

    def latest_us(self, lost_us: Fraction, objective: int | None = None) -> int:
        """Up to which T_step a plan that loses at least so much may be better than the best known, or than this."""
        cutoff = self.cutoff_us(lost_us, objective)
        return self.steps.longest_us() if cutoff is None else cutoff - 1

    def load_below(self, least_step_us: int, objective: int) -> int:
        """The most that the busiest node may have to send or receive, in bytes, for a plan to be better."""
        lost = self.interval_us - Fraction(least_step_us * self.interval_us, objective - 1)
        return floor((lost - self.restart_us) / self.restorer.topology.time_us(1))

    def judge(self, splits: tuple[Split, ...]) -> Fraction:
        """Keep these pipelines, on the nodes where they move least, if that is better; what they lose at least."""
        if self._too_long(splits):
            return Fraction(self.restart_us)
        restored = self._restored(splits)
        self.enough_us = min(self.enough_us, self.restart_us + restored.transfer_us)
        objective = stretched_us(self.problem, self.steps.step_us(splits), self.restart_us + restored.transfer_us)
        if not self.beaten(objective):
            plan = ReplanPlan(policy="dynamic", pipelines=restored.pipelines, transfers=restored.transfers)
            self.best = Replanned(objective, plan)
            self.progress.incumbent_us = objective
        return self.restart_us + restored.least_us

    def take(self, found: Whole, load: int) -> None:
        """Judge whole pipelines, on the nodes that prices chose; on hosts these exchange stages to keep to the load."""
        pipelines = counted_exactly(list(found.pipelines), self.problem.microbatches)
        stages = tuple(layers for layers, _ in pipelines)
        if len(pipelines) == len(found.pipelines) and not (self.on_hosts and (load, stages) in self._placed):
            self._placed.add((load, stages))
            exchanges, known = self.restorer.exchanges, self._known.get(stages)
            restored = self.restorer.placed(pipelines, found.stages, found.flow, found.sent, found.patterns, load)
            if not (self.on_hosts and known and known.transfer_us <= restored.transfer_us):
                self._known[stages] = restored
            self._count(stages, _ALIKE_US if self.on_hosts else _PRICED_US)
            self.steps.effort.spend(_EXCHANGE_US * (self.restorer.exchanges - exchanges))
        self.judge(pipelines)

    def _too_long(self, splits: tuple[Split, ...]) -> bool:
        """Whether choosing the nodes would end long after the limits."""
        if tuple(layers for layers, _ in splits) in self._known:
            return False
        grace_s = GRACE_S if self.objective_us is not None else _FIRST_S
        return self.restorer.about_s(splits) > self.progress.left_s + grace_s

    def _restored(self, splits: tuple[Split, ...]) -> Restored:
        """`restore`, once for pipelines that differ in nothing but their microbatches."""
        stages = tuple(layers for layers, _ in splits)
        self.splits |= dict.fromkeys(stages)
        if stages not in self._known:
            self._known[stages] = self.restorer.restore(splits)
            self._count(stages, _ON_HOSTS_US if self.on_hosts else _ALIKE_US)
        known = self._known[stages]
        counted = [
            msgspec.structs.replace(pipeline, microbatches=count)
            for pipeline, (_, count) in zip(known.pipelines, splits, strict=True)
        ]
        return replace(known, pipelines=tuple(counted))

    def _count(self, stages: tuple[tuple[int, ...], ...], each_us: tuple[int, int]) -> None:
        """Count the choice of the nodes as work."""
        self.steps.effort.spend(each_us[0] * sum(map(len, stages)) + each_us[1] * len(self._known[stages].transfers))
