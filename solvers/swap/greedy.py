"""`greedy-swap`: SmartSwap's policy generation (Algorithm 2), as printed or repaired."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.ir.errors import require_at_least
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.answers import feasible, trivial, whatever_fits
from solvers.swap.evaluate import Choice, Instance, evaluate, instance
from solvers.swap.host import HostLoad
from solvers.swap.issue import issue_swap_ins
from solvers.swap.layers import LogicalLayer, layer_of_op, logical_layers


@dataclass(frozen=True)
class GreedySwap:
    """SmartSwap's heuristic: score the candidates, place each swap-in in a logical layer with time left, repeat.

    `printed` follows the paper: equal operator times (Eq. 1), a swapped tensor relieves memory as soon as it is chosen,
    whenever its swap-out may end, and a swap-in is issued at the start of its logical layer. The repaired form
    (default) uses the operator times, prefers tensors whose swap-outs end before the peak, and issues the swap-ins in
    the order of their use, as early as memory allows (or as placed, where that is better). `layers` logical layers a
    phase; `weight` is C of Eq. (2); tensors below `least_bytes` wait until nothing else is left. `fewest` is for
    machines where launching a copy costs most: the largest tensors where most is lacking, whatever layers have time
    (`layers`, `weight` and `least_bytes` then count only where these do not free enough). `pruned` drops what no op
    needs of the chosen, the smallest first, unless fewer take longer. FEASIBLE with bound None, as every heuristic.
    """

    layers: int = 32
    weight: float = 1.0
    least_bytes: int = 0
    printed: bool = False
    fewest: bool = False
    pruned: bool = False
    NAME = "greedy-swap"

    def __post_init__(self) -> None:
        """Refuse parameters that cannot mean anything."""
        require_at_least(1, layers=self.layers)
        require_at_least(0, weight=self.weight, least_bytes=self.least_bytes)

    def solve(self, problem: SwapProblem, limits: Limits, watch: Watch | None = None) -> Solution[SwapPlan]:
        """A plan in milliseconds; INFEASIBLE with the least budget where no plan exists.

        Where host memory is so short that the heuristic finds none, an engine looks for one within the limits.
        """
        call = Call(self.NAME, limits)
        given = instance(problem)
        known = trivial(problem, given, call)
        if known is not None:
            return known
        choices = _fewest(given) if self.fewest else []
        choices = choices or _Generator(problem, given, self).policy()
        if not self.printed:
            issued = issue_swap_ins(given, [tensor for tensor, _ in choices])
            choices = choices if issued is None else _better(given, choices, issued)
        if self.pruned:
            choices = _pruned(given, choices)
        timeline, reason = evaluate(given, choices), None
        if timeline is not None:
            makespan = timeline.makespan
        else:
            found = whatever_fits(problem, given, call)
            if isinstance(found, Solution):
                return found
            choices, makespan = found
            instead = "every candidate is swapped" if len(choices) == len(given.size) else "a model chose others"
            reason = f"the heuristic's own swaps leave an op without memory, so {instead}"
        return feasible(problem, given, call, (choices, makespan), reason=reason)


def _fewest(given: Instance) -> list[Choice]:
    """At the op that lacks most the largest tensor that is away there, again and again; then without those not needed.

    Empty where these do not free enough, as where the host has no room.
    """
    first, last = np.array(given.first, dtype=np.int64), np.array(given.last, dtype=np.int64)
    size, missing = np.array(given.size, dtype=np.int64), np.array(given.need, dtype=np.int64)
    host, chosen = HostLoad(given.host, len(given.time)), list[Choice]()
    open_ = np.ones(len(size), dtype=bool)
    while missing.max(initial=0) > 0:
        op = int(np.argmax(missing))
        short = np.concatenate(([0], np.cumsum(missing > 0)))
        entries = short[last] - short[np.minimum(first + 1, last)]
        (found,) = np.nonzero(open_ & (first < op) & (op < last))
        best = next((int(i) for i in found[np.lexsort((-entries[found], -size[found]))] if host.fits(int(i))), None)
        if best is None:
            return []
        open_[best] = False
        host.add(best)
        missing[first[best] + 1 : last[best]] -= size[best]
        chosen.append((best, given.last[best]))
    return _needed(given, chosen)


def _better(given: Instance, first: list[Choice], second: list[Choice]) -> list[Choice]:
    one, two = evaluate(given, first), evaluate(given, second)
    if one is None or two is None:
        return first if two is None else second
    return first if one.makespan <= two.makespan else second


def _pruned(given: Instance, choices: list[Choice]) -> list[Choice]:
    """Of the choices only those that are needed: if they return as chosen or, where that is better, as early as may be.

    All of them where fewer take longer.
    """
    late = _needed(given, choices)
    early = issue_swap_ins(given, [tensor for tensor, _ in _needed(given, [(t, given.last[t]) for t, _ in choices])])
    best = late if early is None else _better(given, late, early)
    return _better(given, best, choices)


def _needed(given: Instance, choices: Sequence[Choice]) -> list[Choice]:
    """Those without which some op has no memory: the smallest is dropped first."""
    need, away = np.array(given.need, dtype=np.int64), np.zeros(len(given.time) + 1, dtype=np.int64)
    for tensor, issue in choices:
        away[given.first[tensor] + 1] += given.size[tensor]
        away[issue] -= given.size[tensor]
    spare = np.cumsum(away)[: len(need)] - need
    dropped = set()
    for tensor, issue in sorted(choices, key=lambda choice: given.size[choice[0]]):
        span = spare[given.first[tensor] + 1 : issue]
        if span.min(initial=given.size[tensor]) >= given.size[tensor]:
            span -= given.size[tensor]
            dropped.add(tensor)
    return [choice for choice in choices if choice[0] not in dropped]


class _Generator:
    """One run of Algorithm 2 over the memory reduction list (MRL)."""

    def __init__(self, problem: SwapProblem, given: Instance, options: GreedySwap) -> None:
        self.given, self.options = given, options
        self.layers = logical_layers(problem, options.layers, estimated=options.printed)
        self.layer_of = layer_of_op(self.layers)
        self.missing = np.array(given.need, dtype=np.int64)
        self.peak = int(np.argmax(self.missing))
        self.chosen: dict[int, Choice] = {}
        self.hopeless = np.zeros(len(given.size), dtype=bool)
        self.first, self.last = np.array(given.first, dtype=np.int64), np.array(given.last, dtype=np.int64)
        self.size = np.array(given.size, dtype=np.int64)
        self.host = HostLoad(given.host, len(given.time))

    def policy(self) -> list[Choice]:
        """Lines 1-8: until the MRL is empty, build the candidate list and simulate it."""
        while self.missing.max() > 0:
            candidates = self._candidates(self.options.least_bytes) or self._candidates(0)
            if not candidates:
                break
            in_time = not self.options.printed and self._simulate(candidates, in_time=True)
            if not in_time and not self._simulate(candidates, in_time=False):
                self._force(candidates[0])
        return sorted(self.chosen.values(), key=lambda choice: (choice[1], self.given.last[choice[0]]))

    def _candidates(self, least_bytes: int) -> list[int]:
        """Unchosen tensors that overlap the MRL, by descending Score = N_MRE + C·S, both normalised (Eq. 2)."""
        covered = np.concatenate(([0], np.cumsum(self.missing > 0)))
        entries = covered[self.last] - covered[np.minimum(self.first + 1, self.last)]
        open_ = (entries > 0) & (self.size >= max(1, least_bytes))
        open_[list(self.chosen)] = False
        (found,) = np.nonzero(open_)
        if self.given.host is not None:
            found = found[[self.host.fits(int(tensor)) for tensor in found]]
        if not len(found):
            return []
        score = entries[found] / entries[found].max() + self.options.weight * self.size[found] / self.size[found].max()
        return [int(tensor) for tensor in found[np.argsort(-score, kind="stable")]]

    def _simulate(self, candidates: list[int], in_time: bool) -> bool:
        """Place every candidate whose swap-in fits a layer after the peak, while the MRL has entries in its span.

        `in_time` passes over those whose swap-out would end after the peak. What no layer has time for now, none will
        have time for later, since time left only shrinks, and so does host memory: such tensors are not asked again.
        """
        placed = False
        for tensor in [tensor for tensor, lost in zip(candidates, self.hopeless[candidates], strict=True) if not lost]:
            if not (self.missing[self.first[tensor] + 1 : self.last[tensor]] > 0).any():
                continue
            layer = self._swap_in_layer(tensor) if self.host.fits(tensor) else None
            if layer is None:
                self.hopeless[tensor] = True
            elif self._choose(tensor, layer.start, in_time):
                layer.in_left -= self.given.in_time[tensor]
                placed = True
                if self.missing.max() <= 0:
                    break
        return placed

    def _swap_in_layer(self, tensor: int) -> LogicalLayer | None:
        """§5.4.1: from the layer before the first backward use, back to the peak, the first with enough time left."""
        for number in range(self.layer_of[self.given.last[tensor]] - 1, -1, -1):
            layer = self.layers[number]
            if layer.start <= max(self.peak, self.given.first[tensor]):
                return None
            if layer.in_left > self.given.in_time[tensor]:
                return layer
        return None

    def _force(self, tensor: int) -> None:
        """No candidate's transfer hides: take the best-scored one in the layer before its use and accept the delay."""
        number = max(0, self.layer_of[self.given.last[tensor]] - 1)
        issue = max(self.layers[number].start, self.given.first[tensor] + 1)
        covered = (self.missing[self.given.first[tensor] + 1 : issue] > 0).any()
        self.layers[number].in_left -= self.given.in_time[tensor]
        self._choose(tensor, issue if covered else self.given.last[tensor], in_time=False)

    def _choose(self, tensor: int, issue: int, in_time: bool) -> bool:
        """Record the swap and relieve the MRL; False where the repaired form finds that the swap-out ends too late."""
        if not self.options.printed:
            landing = self._swap_out_layer(tensor)
            if landing is not None:
                landing.out_left -= self.given.out_time[tensor]
            elif in_time:
                return False
        self.chosen[tensor] = (tensor, issue)
        self.host.add(tensor)
        self.missing[self.given.first[tensor] + 1 : issue] -= self.given.size[tensor]
        return True

    def _swap_out_layer(self, tensor: int) -> LogicalLayer | None:
        """§5.4.2, up to the peak: after the last forward use, the first layer with enough time left to send it."""
        for number in range(self.layer_of[self.given.first[tensor] + 1], len(self.layers)):
            if self.layers[number].stop > self.peak:
                return None
            if self.layers[number].out_left > self.given.out_time[tensor]:
                return self.layers[number]
        return None
