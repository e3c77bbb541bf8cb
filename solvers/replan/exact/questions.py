"""What prices leave of plans with one load of the busiest node, and whole pipelines made of it (proofs 7 and 8)."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from solvers.replan.estimate.objective import Split
from solvers.replan.exact.cheapest import Within
from solvers.replan.exact.closing import closed
from solvers.replan.exact.incumbent import Incumbent
from solvers.replan.exact.market import Market
from solvers.replan.exact.placement import LARGEST
from solvers.replan.exact.prices import Mixture, Prices, Pricing
from solvers.replan.exact.wholes import whole_plan

_WORK = 50_000
"""What searches that compare responses may cost together: stages times microbatches cubed."""
_QUESTIONS = 40
"""How often a load of the busiest node is priced, each limit on the fullest stage for itself."""
_NEAREST = 8, 12
"""Splits that whole pipelines are made of, at first and where none were found."""

Left = list[tuple[Pricing, Mixture]]
"""What prices do not exclude, by limit on the fullest stage."""


class Questions:
    """Questions about loads that share the incumbent, the splits known, and `left`: how many more may be asked."""

    def __init__(self, incumbent: Incumbent) -> None:
        self.incumbent, self.steps, self.problem = incumbent, incumbent.steps, incumbent.problem
        self.left, self._work = _QUESTIONS, _WORK
        self._asked, self._doubted = set[tuple[int, tuple[Split, ...]]](), set[tuple[int, int, int]]()
        self._pools = dict[tuple[int, int], list[tuple[int, ...]]]()
        """By limit on the fullest stage and load, the splits that prices came from last."""
        self._prices = dict[tuple[Market, int], dict[int, Prices]]()
        """By market and limit on the fullest stage the best prices for each load."""

    @cached_property
    def market(self) -> Market:
        """What is priced."""
        restorer = self.incumbent.restorer
        return Market(self.problem, restorer.kinds, restorer.sizes, restorer.topology)

    @cached_property
    def possible(self) -> bool:
        """Whether prices are asked for."""
        return self.market.small_enough() and self.incumbent.objective_us is not None

    def ask(self, latest_us: int, load: int, market: Market | None = None) -> Left | None:
        """What prices leave of plans with a T_step up to this one in which no node is busier; None: not known.

        `market`: what is priced, in whose loads (None: the market of all links).
        """
        market, mixtures = market or self.market, Left()
        within = self.steps.within(latest_us, load // market.links[-1])
        if within is None or not all(market.small_enough(some.widest) for some in within):
            return None
        for some in within:
            counted = partial(self.steps.most_within, limit_us=some.limit_us)
            prices = self._prices.setdefault((market, some.limits.fullest), {})
            begin = prices[min(prices, key=lambda known: (abs(known - load), known))] if prices else None
            pricing = Pricing(market, load, some, self.steps.stop, self.steps.effort, counted, begin)
            mixture = pricing.excluded(self._known(some, load, counted))
            prices |= {} if pricing.best is None else {load: pricing.best[1]}
            self._pools[some.limits.fullest, load] = [layers for layers, _ in pricing.pool]
            self.incumbent.splits |= dict.fromkeys(layers for layers, _ in (mixture.splits if mixture else ()))
            mixtures += [] if mixture is None else [(pricing, mixture)]
        return mixtures

    def _known(self, within: Within, load: int, counted: Callable[[tuple[int, ...]], int]) -> list[Split]:
        """Splits to begin with, and their microbatches: those judged, and those that prices came from last."""
        return [
            (layers, most)
            for layers in self.incumbent.splits | dict.fromkeys(self._pools.get((within.limits.fullest, load), ()))
            if len(layers) in within.possible and max(layers) <= within.limits.fullest and (most := counted(layers)) > 0
        ]

    def enough(self, mixtures: Left) -> bool:
        """Whether fractions of pipelines count the microbatches."""
        return any(mixture.counted >= self.problem.microbatches for _, mixture in mixtures)

    def ample(self, mixtures: Left) -> bool:
        """Whether fractions count a whole pipeline more than is needed: whole numbers hardly exclude such a load."""
        few = (mixture.counted - max(most for _, most in mixture.splits) for _, mixture in mixtures if mixture.splits)
        return max(few, default=0.0) >= self.problem.microbatches

    def seek(self, mixtures: Left, least_step_us: int) -> None:
        """Judge whole pipelines of mixtures; where none are better, of the best mixtures: any was enough so far."""
        objective = self.incumbent.objective_us
        for pricing, mixture in mixtures:
            if mixture.counted >= self.problem.microbatches:
                self._seek(pricing, least_step_us)
                if self.incumbent.objective_us == objective and not (self.incumbent.on_hosts or self.incumbent.over()):
                    pricing.settled()
                    self._seek(pricing, least_step_us, more=True)

    def kept(self, mixtures: Left, least_step_us: int, *, wholes: bool = True) -> Left:
        """What is left once whole pipelines were sought; where none are better, once these are told apart.

        Splits then count what they do, and pipelines of each shape are counted in whole numbers (`wholes`).
        """
        objective, kept = self.incumbent.objective_us, Left()
        self.seek(mixtures, least_step_us)
        for pricing, mixture in mixtures:
            if not wholes or self.incumbent.over() or self.incumbent.objective_us != objective:
                kept.append((pricing, mixture))
            elif (refined := pricing.refined(mixture)) is not None and not self._closed(
                pricing, refined, least_step_us
            ):
                kept.append((pricing, refined))
        return kept

    def _closed(self, pricing: Pricing, refined: Mixture, least_step_us: int) -> bool:
        """Whether whole numbers exclude what fractions leave; where not, whole pipelines that they name are judged."""
        best, objective = self.incumbent, self.incumbent.objective_us
        if pricing.exact and refined.counted >= self.problem.microbatches:
            self._seek(pricing, least_step_us)
        if best.objective_us != objective:
            return False
        if (whole := closed(pricing)).excluded:
            return True
        if whole.plan is not None and not best.too_late_to_place():
            best.take(whole.plan, pricing.load)
        if best.objective_us == objective:
            self._seek(pricing, least_step_us, whole.splits, more=True)
        return False

    def doubt(self, mixtures: Left, most: int) -> int:
        """Search up to so many shapes that no split is known for but the relaxation allows; how many were searched."""
        number = 0
        for pricing, mixture in mixtures:
            within = pricing.within
            for (layers, count), _ in sorted(zip(mixture.splits, mixture.amounts, strict=True), key=lambda k: -k[1]):
                shape = within.limits.fullest, len(layers), count
                work = len(layers) * count**3 if count <= LARGEST else 0
                if number == most or shape in self._doubted or work > self._work:
                    continue
                if self.steps.most_within(layers, within.limit_us) < count:
                    self._doubted.add(shape)
                    self._work, number = self._work - work, number + 1
                    self.incumbent.splits |= dict.fromkeys(self.steps.ask(within, len(layers), count))
        return number

    def _seek(self, pricing: Pricing, least_step_us: int, splits: Sequence[Split] = (), *, more: bool = False) -> None:
        """Judge whole pipelines that keep to the load, until some are better than the best known.

        As quick as any, or as quick as is better with this load, of which `splits` are known to do in fractions.
        """
        best, load, limit_us = self.incumbent, pricing.load, pricing.within.limit_us
        if best.too_late_to_place():
            return
        latest_us = best.latest_us(best.taken_us(load))
        sync_us, before = self.steps.sync_of_us(pricing.within.limits.fullest), best.objective_us
        for number, within_us in enumerate((least_step_us - sync_us, latest_us - sync_us, limit_us)):
            counted = partial(self.steps.most_within, limit_us=min(limit_us, within_us))
            if number < 2:
                shapes = pricing.nearest(counted, _NEAREST[more])
            else:
                shapes = [(layers, most) for layers in dict(splits) if (most := counted(layers)) > 0]
            asked = load, tuple(sorted(shapes))
            if not shapes or asked in self._asked or (number and best.over()):
                continue
            self._asked.add(asked)
            found = whole_plan(self.market, load, shapes, self.problem.microbatches, self.steps.effort)
            if found is None:
                continue
            best.take(found, load)
            if best.objective_us != before:
                break
            self.left -= 1  # its nodes move more than was priced, and the next ones' may
