"""The whole objective after a failure: a shorter step against what its transition takes (README, proofs 5 and 7)."""

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction

from solvers.ir.replan import NewPipeline, ReplanPlan, ReplanProblem
from solvers.replan.estimate.objective import stretched_us
from solvers.replan.exact.every_plan import TooManyError
from solvers.replan.exact.incumbent import Incumbent, Replanned
from solvers.replan.exact.kept import kept_pipelines
from solvers.replan.exact.loads import bound_by_loads
from solvers.replan.exact.placement import WITNESSES
from solvers.replan.exact.questions import Questions
from solvers.replan.exact.step import NEVER_US, Fastest
from solvers.replan.exact.steps import StepTimes
from solvers.replan.progress import Progress

_BEGIN_US = 60_000
"""About what every search takes that is counted nowhere else."""
_SMALL, _STAGES = 16, 100_000
"""The most nodes, and the most plans times nodes, for which plans are judged one by one."""


def replanned(problem: ReplanProblem, steps: StepTimes, progress: Progress) -> Replanned:
    """The best decision that re-plans, if it is better than the incumbent; `progress` gets incumbents and the bound."""
    if problem.current is not None:
        return _Search(problem, steps, progress).run()
    found = steps.best(progress.incumbent_us, steps.movable.loads[-1])
    progress.bound_us = found.bound_us
    if not found.splits:
        return Replanned(progress.incumbent_us, impossible=found.bound_us >= NEVER_US)
    progress.incumbent_us = found.time_us
    pipelines = tuple(NewPipeline(layers=layers, microbatches=count, nodes=None) for layers, count in found.splits)
    return Replanned(found.time_us, ReplanPlan(policy="dynamic", pipelines=pipelines, transfers=None))


class _Search:
    """Step times first; then how little the busiest node can receive, load by load, in bytes."""

    def __init__(self, problem: ReplanProblem, steps: StepTimes, progress: Progress) -> None:
        self.problem, self.steps, self.progress = problem, steps, progress
        self.incumbent = Incumbent(problem, steps, progress)
        self.questions = Questions(self.incumbent)
        self.least = self.cleared = 0
        """The first load that a better plan may have; no plan whose busiest node has a smaller load is better."""
        steps.effort.spend(_BEGIN_US)
        most_us = self.incumbent.interval_us
        self.loads = tuple(load for load in steps.movable.loads if self.incumbent.lost_us(load) < most_us)

    def run(self) -> Replanned:
        """The best plan; what it proves is noted in `progress`."""
        bound, best = self._searched() if self.loads else None, self.incumbent.best
        best.impossible = bound is None
        self.progress.bound_us = best.objective_us if bound is None else bound
        return best

    def _searched(self) -> int | None:
        """A bound on all decisions that re-plan; None where there is none."""
        beaten, restart_us = self.incumbent.beaten, self.incumbent.restart_us
        free = self._steps(len(self.loads) - 1, Fraction(restart_us))
        if free.bound_us >= NEVER_US:
            return None
        bound = stretched_us(self.problem, free.bound_us, restart_us) or 0
        self.progress.bound_us = bound
        kept = kept_pipelines(self.problem, self.steps.timetable)
        if kept and not beaten(stretched_us(self.problem, self.steps.step_us(kept), restart_us)):
            self.incumbent.judge(kept)
        if free.splits:
            if self.problem.nodes > _SMALL:
                self.steps.most_suffixes = min(self.steps.most_suffixes, WITNESSES)
            bound = max(bound, self._bound(free.bound_us))
            if not beaten(bound):
                bound = bound_by_loads(self.questions, free.bound_us, self.cleared, bound)
            if self.problem.nodes <= _SMALL and not beaten(bound):
                return self._enumerated(bound)
        return bound

    def _steps(self, number: int, lost_us: Fraction) -> Fastest:
        """The best step with a load, at least so much being lost; its plan is judged whole."""
        found = self.steps.best(self.incumbent.cutoff_us(lost_us), self.loads[number])
        if found.splits and (self.incumbent.best.plan is None or not self.incumbent.too_late_to_place()):
            self.incumbent.judge(found.splits)
        return found

    def _bound(self, least_step_us: int) -> int:
        """The least objective that a load leaves possible, from the least load that any plan as good needs."""
        best, bounds = self.incumbent, list[int]()
        self.least = self._least_load()
        number, self.cleared = self.least, self.loads[self.least]
        while number < len(self.loads):
            lost = best.lost_us(self.loads[number])
            floor = stretched_us(self.problem, least_step_us, lost)
            if floor is None or best.beaten(floor):
                break
            if best.over():
                return min([*bounds, floor])
            found = self._steps(number, lost)
            bounds.append(stretched_us(self.problem, max(found.bound_us, least_step_us), lost) or floor)
            if best.beaten(bounds[-1]) and self.cleared == self.loads[number] and number + 1 < len(self.loads):
                self.cleared = self.loads[number + 1]
            if found.bound_us <= least_step_us:
                break
            number += 1
        return min([*bounds, *([] if best.objective_us is None else [best.objective_us])], default=0)

    def _least_load(self) -> int:
        """The first load with which a plan that is better than the best, its transfers forgotten, may exist."""
        best, low, high = self.incumbent, 0, len(self.loads) - 1
        while low < high and not best.over():
            enough = bisect_left(self.loads, best.enough_us, low, high, key=best.lost_us)
            middle, high = (low + enough) // 2, enough
            if low == high:
                break
            lost, known = best.lost_us(self.loads[low]), self.steps.most_suffixes
            cutoff, questions = best.cutoff_us(lost), self.questions
            if questions.possible:  # known splits, then prices: a search is dearest where it finds nothing
                self.steps.most_suffixes = 0
                found = self._steps(middle, lost)
                self.steps.most_suffixes = known
                most = self.loads[middle + 1] - 1
                if not found.splits and questions.ask(best.latest_us(lost), most, questions.market.at_one_rate) == []:
                    low = middle + 1
                    continue
            if not questions.possible or not found.splits:
                found = self._steps(middle, lost)
            if found.splits or cutoff is None or found.bound_us < cutoff:
                high = middle
            else:
                low = middle + 1
        return low

    def _enumerated(self, bound: int) -> int | None:
        """The bound once each plan that could be better has been judged, where these are few; None: there is none."""
        best, unproven = self.incumbent, list[int]()
        lost = best.lost_us(self.loads[self.least])
        latest_us, objective = self._latest_of(lost), best.objective_us
        try:
            most = _STAGES // self.problem.nodes
            plans = sorted(set(self.steps.every_plan(best.latest_us(lost), most, latest_us)))
        except TooManyError:
            return bound
        for step, splits in plans:
            if best.objective_us != objective:
                latest_us, objective = self._latest_of(lost), best.objective_us
            if step <= latest_us(tuple(len(layers) for layers, _ in splits)):
                if self.steps.stop():
                    return bound
                least = stretched_us(self.problem, step, max(lost, best.judge(splits)))
                unproven += [] if least is None else [least]
        return min([*unproven, *([] if best.objective_us is None else [best.objective_us])], default=None)

    def _latest_of(self, lost_us: Fraction) -> Callable[[tuple[int, ...]], int]:
        """Up to which T_step pipelines of some depths may be better than the best, until something better is found."""
        known = dict[tuple[int, int], int]()

        def latest_us(depths: tuple[int, ...]) -> int:
            size = len(depths), sum(depths)
            if size not in known:
                known[size] = self.incumbent.latest_us(max(lost_us, self._least_lost_us(depths)))
            return known[size]

        return latest_us

    def _least_lost_us(self, depths: tuple[int, ...]) -> Fraction:
        """What pipelines of these depths lose at least: only how many they and their stages are tells it."""
        some = [((self.problem.layers - depth + 1,) + (1,) * (depth - 1), 1) for depth in depths]
        return self.incumbent.restart_us + self.incumbent.restorer.least_us(some)
