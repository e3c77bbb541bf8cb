"""The whole objective after a failure: a shorter step against what its transition takes (README, proofs 5 and 7).

One file: loads one by one, prices and plans one by one share the incumbent, its cutoffs and what is excluded already.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from math import floor

import msgspec

from solvers.ir.replan import NewPipeline, ReplanPlan, ReplanProblem
from solvers.replan.estimate.objective import Split, stretched_us
from solvers.replan.exact.closing import closed
from solvers.replan.exact.every_plan import TooManyError
from solvers.replan.exact.kept import counted_exactly, kept_pipelines
from solvers.replan.exact.market import Market
from solvers.replan.exact.placement import LARGEST, WITNESSES
from solvers.replan.exact.prices import Mixture, Pricing, Whole, whole_plan
from solvers.replan.exact.step import NEVER_US, Fastest
from solvers.replan.exact.steps import StepTimes
from solvers.replan.progress import GRACE_S, Progress
from solvers.replan.transfer.restore import Restored, Restorer

_ASKS = 12
"""Shapes of pipelines that are searched for because prices rest on them."""
_WORK = 50_000
"""What searches for these that compare responses may cost together: stages times microbatches cubed."""
_QUESTIONS = 40
"""How often a load of the busiest node is priced, each limit on the fullest stage for itself."""
_ROOMY = 1.002
"""Where fractions of pipelines count so many times the microbatches, the least load not excluded is asked next."""
_ALIKE_US, _ON_HOSTS_US, _PRICED_US = (5, 2), (36, 8), (2, 1)
"""About what choosing nodes takes for each stage and each transfer; where hosts matter; where prices have chosen."""
_EXCHANGE_US = 60
"""About what each exchange of stages takes that is looked at."""
_FIRST_S = 2.0
"""Seconds behind the limits in which the nodes of the first plan may still be chosen."""
_LAST = 0.85
"""Share of the effort after which nodes are no longer chosen where hosts matter, as that takes long."""
_BEGIN_US = 60_000
"""About what every search takes that is counted nowhere else."""
_STAGES_A_US = 140
"""Stages of kinds of nodes looked at in a microsecond."""
_SMALL, _STAGES = 16, 100_000
"""The most nodes, and the most plans times nodes, for which plans are judged one by one."""


@dataclass
class Replanned:
    """The best plan found that re-plans; `objective_us` is at first what it has to beat (None: nothing).

    `impossible`: it is proven that nothing can be re-planned.
    """

    objective_us: int | None
    plan: ReplanPlan | None = None
    impossible: bool = False


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
    """Step times first; then how little the busiest node can receive, load by load."""

    def __init__(self, problem: ReplanProblem, steps: StepTimes, progress: Progress) -> None:
        self.problem, self.steps, self.progress = problem, steps, progress
        self.restart_us, self.interval_us = problem.restart_us or 0, problem.expected_interval_us or 0
        self.restorer = Restorer(problem, stop=steps.stop)
        self.work, self.questions = _WORK, _QUESTIONS
        self.asked = set[tuple[int, tuple[Split, ...]]]()
        self.placed = set[tuple[int, tuple[tuple[int, ...], ...]]]()
        self.cleared = 0  # no plan whose busiest node has a smaller load is better than the best
        self.splits, self.doubted = dict[tuple[int, ...], None](), set[tuple[int, int, int]]()
        self.pools = dict[tuple[int, int], list[tuple[int, ...]]]()
        """By limit on the fullest stage and load, the splits that prices came from last."""
        steps.effort.spend(_BEGIN_US)
        self.best, self.known = Replanned(progress.incumbent_us), dict[tuple[tuple[int, ...], ...], Restored]()
        self.least, self.enough_us = 0, Fraction(self.interval_us)
        self.loads = tuple(load for load in steps.movable.loads if self._lost_us(load) < self.interval_us)

    @cached_property
    def market(self) -> Market:
        """What is priced."""
        return Market(self.problem, self.restorer.kinds, self.restorer.sizes, self.restorer.topology)

    def run(self) -> Replanned:
        """The best plan; what it proves is noted in `progress`."""
        bound = self._searched() if self.loads else None
        self.best.impossible = bound is None
        self.progress.bound_us = self.best.objective_us if bound is None else bound
        return self.best

    def _searched(self) -> int | None:
        """A bound on all decisions that re-plan; None where there is none."""
        free = self._steps(len(self.loads) - 1, Fraction(self.restart_us))
        if free.bound_us >= NEVER_US:
            return None
        bound = stretched_us(self.problem, free.bound_us, self.restart_us) or 0
        self.progress.bound_us = bound
        kept = kept_pipelines(self.problem, self.steps.timetable)
        if kept and not self._beaten(stretched_us(self.problem, self.steps.step_us(kept), self.restart_us)):
            self._judge(kept)
        if free.splits:
            if self.problem.nodes > _SMALL:
                self.steps.most_suffixes = min(self.steps.most_suffixes, WITNESSES)
            bound = max(bound, self._bound(free.bound_us))
            if not self._beaten(bound):
                bound = self._priced(free.bound_us, bound)
            if self.problem.nodes <= _SMALL and not self._beaten(bound):
                return self._enumerated(bound)
        return bound

    def _lost_us(self, load: int) -> Fraction:
        """What is lost where the busiest node receives or sends so many bytes."""
        return self._taken_us(load * self.restorer.topology.least_price)

    def _taken_us(self, load: int) -> Fraction:
        """What is lost with this load of the busiest node."""
        return self.restart_us + self.restorer.topology.time_us(load)

    def _cutoff_us(self, lost_us: Fraction, objective: int | None = None) -> int | None:
        """The least T_step that, with such a transition, is no better than the best plan, or than this objective."""
        objective = self.best.objective_us if objective is None else objective
        if objective is None:
            return None
        return int((objective - 1) * (self.interval_us - lost_us) / self.interval_us) + 1

    def _steps(self, number: int, lost_us: Fraction) -> Fastest:
        """The best step with a load, at least so much being lost; its plan is judged whole."""
        found = self.steps.best(self._cutoff_us(lost_us), self.loads[number])
        if found.splits and (self.best.plan is None or not (self._hosts and self.steps.effort.over(_LAST))):
            self._judge(found.splits)
        return found

    def _judge(self, splits: tuple[Split, ...]) -> Fraction:
        """Keep these pipelines, on the nodes where they move least, if that is better; what they lose at least."""
        if self._too_long(splits):
            return Fraction(self.restart_us)
        restored = self._restored(splits)
        self.enough_us = min(self.enough_us, self.restart_us + restored.transfer_us)
        objective = stretched_us(self.problem, self.steps.step_us(splits), self.restart_us + restored.transfer_us)
        if not self._beaten(objective):
            plan = ReplanPlan(policy="dynamic", pipelines=restored.pipelines, transfers=restored.transfers)
            self.best = Replanned(objective, plan)
            self.progress.incumbent_us = objective
        return self.restart_us + restored.least_us

    def _too_long(self, splits: tuple[Split, ...]) -> bool:
        """Whether choosing the nodes would end long after the limits."""
        if tuple(layers for layers, _ in splits) in self.known:
            return False
        grace_s = GRACE_S if self.best.objective_us is not None else _FIRST_S
        return self.restorer.about_s(splits) > self.progress.left_s + grace_s

    def _restored(self, splits: tuple[Split, ...]) -> Restored:
        """`restore`, once for pipelines that differ in nothing but their microbatches."""
        stages = tuple(layers for layers, _ in splits)
        self.splits |= dict.fromkeys(stages)
        if stages not in self.known:
            self.known[stages] = self.restorer.restore(splits)
            self._count(stages, _ON_HOSTS_US if self._hosts else _ALIKE_US)
        known = self.known[stages]
        counted = [
            msgspec.structs.replace(pipeline, microbatches=count)
            for pipeline, (_, count) in zip(known.pipelines, splits, strict=True)
        ]
        return replace(known, pipelines=tuple(counted))

    def _count(self, stages: tuple[tuple[int, ...], ...], each_us: tuple[int, int]) -> None:
        """Count the choice of the nodes as work."""
        self.steps.effort.spend(each_us[0] * sum(map(len, stages)) + each_us[1] * len(self.known[stages].transfers))

    def _bound(self, least_step_us: int) -> int:
        """The least objective that a load leaves possible, from the least load that any plan as good needs."""
        self.least, bounds = self._least_load(), list[int]()
        number, self.cleared = self.least, self.loads[self.least]
        while number < len(self.loads):
            lost = self._lost_us(self.loads[number])
            floor = stretched_us(self.problem, least_step_us, lost)
            if floor is None or self._beaten(floor):
                break
            if self._over():
                return min([*bounds, floor])
            found = self._steps(number, lost)
            bounds.append(stretched_us(self.problem, max(found.bound_us, least_step_us), lost) or floor)
            if self._beaten(bounds[-1]) and self.cleared == self.loads[number] and number + 1 < len(self.loads):
                self.cleared = self.loads[number + 1]
            if found.bound_us <= least_step_us:
                break
            number += 1
        return min([*bounds, *([] if self.best.objective_us is None else [self.best.objective_us])], default=0)

    def _priced(self, least_step_us: int, bound: int) -> int:
        """The bound once prices have excluded loads of the busiest node.

        Of the loads that nothing excludes yet any plan needs at least the first; whole pipelines are sought for others.
        """
        if self.best.objective_us is None or self._over() or not self._prices:
            return bound
        if not self._hosts:
            self.steps.effort.spend(len(self.market.runs) * self.problem.layers**2 // _STAGES_A_US)
        grid = self.market.loads(self._load_below(least_step_us, self.best.objective_us))
        low = bisect_left(grid, self.cleared * self.restorer.topology.least_price)
        unsure, tried, high = len(grid), low, len(grid)
        asks, looked = _ASKS, 0
        while self.questions > 0:  # all below `low` are excluded; nothing was found from `unsure` to before `tried`
            if self._over() or (low >= unsure and tried >= high):
                break
            middle = (low + unsure) // 2 if low < unsure else (tried + high) // 2
            left = self._left(self._latest_us(self._taken_us(grid[low])), grid[middle])
            if left is None:
                return bound
            self.questions -= max(1, len(left))
            objective = self.best.objective_us
            if low < middle < unsure and looked != objective and self._roomy(left):
                looked, middle = objective, low  # perhaps the least load will do: a look at it costs little
                if (left := self._left(self._latest_us(self._taken_us(grid[low])), grid[low])) is None:
                    return bound
                self._tried(left, least_step_us)
                if left and self.best.objective_us == objective:
                    continue
            else:
                left = self._kept(left, least_step_us, wholes=not low < middle < unsure or not self._ample(left))
            if not left:
                low = middle + 1
                tried, unsure = max(tried, low), max(unsure, low)
                bound = max(bound, self._floor_us(least_step_us, grid[low] if low < high else None))
                continue
            unsure = min(unsure, middle)
            if asks and self.best.objective_us == objective:
                asks -= (asked := self._doubted(left, asks))
                if asked:
                    unsure = min(high, middle + 1)
                    continue
            if self.best.objective_us < objective:
                high = bisect_right(grid, self._load_below(least_step_us, self.best.objective_us))
                unsure = min(high, middle + (low == middle))  # what is better has to be quicker
                bound = min(bound, self.best.objective_us)
            else:
                tried = middle + 1
        return self._raised(grid[low:high], least_step_us, bound) if low < high else self.best.objective_us

    def _roomy(self, left: Sequence[tuple[Pricing, Mixture]]) -> bool:
        """Whether fractions of pipelines count so much more than is needed that a smaller load may do."""
        counted = max((mixture.counted for _, mixture in left), default=0.0)
        return not self._hosts and counted >= _ROOMY * self.problem.microbatches

    def _ample(self, left: Sequence[tuple[Pricing, Mixture]]) -> bool:
        """Whether fractions count a whole pipeline more than is needed: whole numbers hardly exclude such a load."""
        few = (mixture.counted - max(most for _, most in mixture.splits) for _, mixture in left if mixture.splits)
        return max(few, default=0.0) >= self.problem.microbatches

    def _raised(self, loads: Sequence[int], least_step_us: int, bound: int) -> int:
        """The bound once prices have excluded slower steps with these loads as well, objectives bisected."""
        high = self.best.objective_us or bound
        while bound < high and self.questions > 0 and not self._over():
            middle = (bound + high + 1) // 2
            if self._none_below(middle, loads, least_step_us):
                bound = middle
            else:
                high = min(middle - 1, self.best.objective_us or bound)
        return bound

    def _none_below(self, objective: int, loads: Sequence[int], least_step_us: int) -> bool:
        """Whether prices exclude all plans of less than this objective with one of these loads, smaller ones first."""
        for load in loads:
            latest_us = self._latest_us(self._taken_us(load), objective)
            if latest_us < least_step_us:
                break
            left = self._left(latest_us, load)
            self.questions -= 1
            if left is None or self._kept(left, least_step_us):
                return False
        return True

    def _tried(self, left: Sequence[tuple[Pricing, Mixture]], least_step_us: int) -> None:
        """Judge whole pipelines of mixtures; where none are better, of the best mixtures: any was enough so far."""
        objective = self.best.objective_us
        for pricing, mixture in left:
            if mixture.counted >= self.problem.microbatches:
                self._mixed(pricing, least_step_us, ())
                if self.best.objective_us == objective and not (self._hosts or self._over()):
                    pricing.settled()
                    self._mixed(pricing, least_step_us, ())

    def _kept(
        self, left: list[tuple[Pricing, Mixture]], least_step_us: int, *, wholes: bool = True
    ) -> list[tuple[Pricing, Mixture]]:
        """What is left once whole pipelines were sought; where none are better, once these are told apart.

        Splits then count what they do, and pipelines of each shape are counted in whole numbers (`wholes`).
        """
        objective, kept = self.best.objective_us, list[tuple[Pricing, Mixture]]()
        self._tried(left, least_step_us)
        for pricing, mixture in left:
            if not wholes or self._over() or self.best.objective_us != objective:
                kept.append((pricing, mixture))
            elif (refined := pricing.refined(mixture)) is None:
                continue
            else:
                if pricing.exact and refined.counted >= self.problem.microbatches:
                    self._mixed(pricing, least_step_us, ())
                if self.best.objective_us != objective:
                    kept.append((pricing, refined))
                    continue
                if (whole := closed(pricing)).excluded:
                    continue
                kept.append((pricing, refined))
                if whole.plan is not None and not (self._hosts and self.steps.effort.over(_LAST)):
                    self._take(whole.plan, pricing.load)
                if whole.splits and self.best.objective_us == objective:
                    self._mixed(pricing, least_step_us, whole.splits)
        return kept

    @property
    def _hosts(self) -> bool:
        return self.restorer.topology.nodes_per_host > 1

    def _over(self) -> bool:
        """Whether no more is asked: what is proven by then stands."""
        return self.steps.stop() or self.steps.effort.over()

    @cached_property
    def _prices(self) -> bool:
        """Whether prices are asked for."""
        return self.market.small_enough() and self.best.objective_us is not None

    def _floor_us(self, least_step_us: int, load: int | None) -> int:
        """No plan has a lower objective whose busiest node has this load at least; None: none is better than known."""
        best = self.best.objective_us or 0
        floor = best if load is None else stretched_us(self.problem, least_step_us, self._taken_us(load))
        return best if floor is None else min(floor, best)

    def _load_below(self, least_step_us: int, objective: int) -> int:
        """The most that the busiest node may have to send or receive, in bytes, for a plan to be better."""
        lost = self.interval_us - Fraction(least_step_us * self.interval_us, objective - 1)
        return floor((lost - self.restart_us) / self.restorer.topology.time_us(1))

    def _left(self, latest_us: int, load: int, market: Market | None = None) -> list[tuple[Pricing, Mixture]] | None:
        """What prices leave of plans with a T_step up to this one in which no node is busier; None: not known.

        `market`: what is priced, in whose loads (None: the market of all links).
        """
        market, mixtures = market or self.market, list[tuple[Pricing, Mixture]]()
        within = self.steps.within(latest_us, load // market.links[-1])
        if within is None or not all(market.small_enough(some.widest) for some in within):
            return None
        for some in within:
            known = [
                (layers, most)
                for layers in self.splits | dict.fromkeys(self.pools.get((some.limits.fullest, load), ()))
                if len(layers) in some.possible
                and max(layers) <= some.limits.fullest
                and (most := self.steps.most_within(layers, some.limit_us)) > 0
            ]
            counted = partial(self.steps.most_within, limit_us=some.limit_us)
            pricing = Pricing(market, load, some, self.steps.stop, self.steps.effort, counted)
            mixture = pricing.excluded(known)
            self.pools[some.limits.fullest, load] = [layers for layers, _ in pricing.pool]
            self.splits |= dict.fromkeys(layers for layers, _ in (mixture.splits if mixture else ()))
            mixtures += [] if mixture is None else [(pricing, mixture)]
        return mixtures

    def _doubted(self, mixtures: Sequence[tuple[Pricing, Mixture]], most: int) -> int:
        """Search up to so many shapes that no split is known for but the relaxation allows; how many were searched."""
        number = 0
        for pricing, mixture in mixtures:
            within = pricing.within
            for (layers, count), _ in sorted(zip(mixture.splits, mixture.amounts, strict=True), key=lambda k: -k[1]):
                shape = within.limits.fullest, len(layers), count
                work = len(layers) * count**3 if count <= LARGEST else 0
                if number == most or shape in self.doubted or work > self.work:
                    continue
                if self.steps.most_within(layers, within.limit_us) < count:
                    self.doubted.add(shape)
                    self.work, number = self.work - work, number + 1
                    self.splits |= dict.fromkeys(self.steps.ask(within, len(layers), count))
        return number

    def _mixed(self, pricing: Pricing, least_step_us: int, splits: Sequence[Split]) -> None:
        """Judge whole pipelines that keep to the load, until some are better than the best known.

        As quick as any, or as quick as is better with this load, of which `splits` are known to do in fractions.
        """
        load, limit_us = pricing.load, pricing.within.limit_us
        if self._hosts and self.steps.effort.over(_LAST):
            return
        latest_us = self._latest_us(self._taken_us(load))
        sync_us, before = self.steps.sync_of_us(pricing.within.limits.fullest), self.best.objective_us
        for number, within_us in enumerate((least_step_us - sync_us, latest_us - sync_us, limit_us)):
            counted = partial(self.steps.most_within, limit_us=min(limit_us, within_us))
            if number < 2:
                shapes = pricing.nearest(counted)
            else:
                shapes = [(layers, most) for layers in dict(splits) if (most := counted(layers)) > 0]
            asked = load, tuple(sorted(shapes))
            if not shapes or asked in self.asked or (number and self._over()):
                continue
            self.asked.add(asked)
            found = whole_plan(self.market, load, shapes, self.problem.microbatches, self.steps.effort)
            if found is None:
                continue
            self._take(found, load)
            if self.best.objective_us != before:
                break
            self.questions -= 1  # its nodes move more than was priced, and the next ones' may

    def _take(self, found: Whole, load: int) -> None:
        """Judge whole pipelines, on the nodes that prices chose; on hosts these exchange stages to keep to the load."""
        pipelines = counted_exactly(list(found.pipelines), self.problem.microbatches)
        stages = tuple(layers for layers, _ in pipelines)
        if len(pipelines) == len(found.pipelines) and not (self._hosts and (load, stages) in self.placed):
            self.placed.add((load, stages))
            exchanges, known = self.restorer.exchanges, self.known.get(stages)
            restored = self.restorer.placed(pipelines, found.stages, found.flow, found.sent, found.patterns, load)
            if not (self._hosts and known and known.transfer_us <= restored.transfer_us):
                self.known[stages] = restored
            self._count(stages, _ALIKE_US if self._hosts else _PRICED_US)
            self.steps.effort.spend(_EXCHANGE_US * (self.restorer.exchanges - exchanges))
        self._judge(pipelines)

    def _enumerated(self, bound: int) -> int | None:
        """The bound once each plan that could be better has been judged, where these are few; None: there is none."""
        lost, unproven = self._lost_us(self.loads[self.least]), list[int]()
        try:
            plans = sorted(
                set(self.steps.every_plan(self._latest_us(lost), _STAGES // self.problem.nodes, self._latest_of(lost)))
            )
        except TooManyError:
            return bound
        latest_us, incumbent = self._latest_of(lost), self.best.objective_us
        for step, splits in plans:
            if self.best.objective_us != incumbent:
                latest_us, incumbent = self._latest_of(lost), self.best.objective_us
            if step <= latest_us(tuple(len(layers) for layers, _ in splits)):
                if self.steps.stop():
                    return bound
                least = stretched_us(self.problem, step, max(lost, self._judge(splits)))
                unproven += [] if least is None else [least]
        best = self.best.objective_us
        return min([*unproven, *([] if best is None else [best])], default=None)

    def _latest_us(self, lost_us: Fraction, objective: int | None = None) -> int:
        """Up to which T_step a plan that loses at least so much may be better than the best known, or than this."""
        cutoff = self._cutoff_us(lost_us, objective)
        return self.steps.longest_us() if cutoff is None else cutoff - 1

    def _latest_of(self, lost_us: Fraction) -> Callable[[tuple[int, ...]], int]:
        """The same for pipelines of some depths, for as long as nothing better is found."""
        known = dict[tuple[int, int], int]()

        def latest_us(depths: tuple[int, ...]) -> int:
            size = len(depths), sum(depths)
            if size not in known:
                known[size] = self._latest_us(max(lost_us, self._least_lost_us(depths)))
            return known[size]

        return latest_us

    def _least_lost_us(self, depths: tuple[int, ...]) -> Fraction:
        """What pipelines of these depths lose at least: only how many they and their stages are tells it."""
        some = [((self.problem.layers - depth + 1,) + (1,) * (depth - 1), 1) for depth in depths]
        return self.restart_us + self.restorer.least_us(some)

    def _beaten(self, objective_us: int | None) -> bool:
        """Whether a plan is known that is as good."""
        if objective_us is None:
            return True
        return self.best.objective_us is not None and objective_us >= self.best.objective_us

    def _least_load(self) -> int:
        """The first load with which a plan that is better than the best, its transfers forgotten, may exist."""
        low, high = 0, len(self.loads) - 1
        while low < high and not self._over():
            enough = bisect_left(self.loads, self.enough_us, low, high, key=self._lost_us)
            middle, high = (low + enough) // 2, enough
            if low == high:
                break
            lost, known = self._lost_us(self.loads[low]), self.steps.most_suffixes
            cutoff = self._cutoff_us(lost)
            if self._prices:  # known splits, then prices: a search is dearest where it finds nothing
                self.steps.most_suffixes = 0
                found = self._steps(middle, lost)
                self.steps.most_suffixes = known
                most = self.loads[middle + 1] - 1
                if not found.splits and self._left(self._latest_us(lost), most, self.market.at_one_rate) == []:
                    low = middle + 1
                    continue
            if not self._prices or not found.splits:
                found = self._steps(middle, lost)
            if found.splits or cutoff is None or found.bound_us < cutoff:
                high = middle
            else:
                low = middle + 1
        return low
