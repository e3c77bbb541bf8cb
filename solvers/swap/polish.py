"""From a fractional selection to a plan, and from a plan to a better one: local search with the exact recursion."""

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from solvers.swap.evaluate import Choice, Instance
from solvers.swap.issue import Issuer, issuer_of

THRESHOLDS = (0.5, 0.3, 0.1, 0.01, 0.0)
HEAT = 0.04
"""The first temperature of the annealing, as a share of the overhead."""
SHIFT_EVERY = 5
CYCLES, COOLER = 4, 0.2
"""Restarts of the annealing from the best set, and the temperature of each as a share of the one before."""


@dataclass
class Incumbent:
    """The best plan so far."""

    given: Instance
    makespan: int | None = None
    choices: list[Choice] = field(default_factory=list)
    issuer: Issuer = field(init=False)

    def __post_init__(self) -> None:
        """One issuer for all sets."""
        self.issuer = issuer_of(self.given)

    def offer(self, choices: Sequence[Choice]) -> None:
        """Keep the choices where they are valid and better."""
        if self._has_room([tensor for tensor, _ in choices]):
            self._take(choices, self.issuer.makespan(choices))

    def offer_set(self, selected: Sequence[int]) -> None:
        """Issue the swap-ins of a set of tensors and offer the result."""
        issued = self.issuer.issue(selected) if self._has_room(selected) else None
        if issued is not None:
            self._take(*issued)

    def tried(self, selected: Sequence[int], most: int) -> int | None:
        """The makespan of a set if it is at most so much, offered; measured quickly. None where it is more, or none."""
        issued = self.issuer.quick(selected, most) if self._has_room(selected) else None
        if issued is None or issued[1] > most:
            return None
        if self.makespan is None or issued[1] < self.makespan:
            self.offer_set(selected)  # the other of the two ways may end sooner
        return issued[1]

    def _has_room(self, selected: Sequence[int]) -> bool:
        return self.given.host is None or self.given.host.holds(selected)

    def _take(self, choices: Sequence[Choice], makespan: int | None) -> None:
        if makespan is not None and (self.makespan is None or makespan < self.makespan):
            self.makespan, self.choices = makespan, list(choices)


def round_selection(given: Instance, weights: Sequence[float], incumbent: Incumbent) -> None:
    """Offer the sets that the fractional selection suggests, each completed by descending weight until memory fits."""
    ranked = sorted(range(len(weights)), key=lambda tensor: (-weights[tensor], -given.size[tensor]))
    counts = (sum(weight > threshold for weight in weights) for threshold in THRESHOLDS)
    _offer_beginnings(given, ranked, counts, incumbent)


def offer_orders(given: Instance, incumbent: Incumbent) -> None:
    """Offer the fewest tensors that free enough memory, in the orders in which a step itself would take them."""
    size, first, last = given.size, given.first, given.last
    for key in (
        lambda tensor: (first[tensor], -last[tensor]),
        lambda tensor: (-last[tensor], first[tensor]),
        lambda tensor: (first[tensor] - last[tensor], -size[tensor]),
        lambda tensor: (-size[tensor], first[tensor]),
    ):
        _offer_beginnings(given, sorted(range(len(size)), key=key), [0], incumbent)


def _offer_beginnings(given: Instance, ranked: Sequence[int], counts: Iterable[int], incumbent: Incumbent) -> None:
    """Offer the first so many tensors of a ranking, more where memory asks for them: more never fit worse."""
    least = bisect_left(range(len(ranked) + 1), True, key=lambda count: _fits(given, ranked[:count]))
    for count in sorted({max(count, least) for count in counts}):
        if count <= len(ranked):
            incumbent.offer_set(ranked[:count])


def _fits(given: Instance, selected: Sequence[int]) -> bool:
    change = [0] * (len(given.time) + 1)
    for tensor in selected:
        change[given.first[tensor] + 1] += given.size[tensor]
        change[given.last[tensor]] -= given.size[tensor]
    return all(absent >= need for absent, need in zip(accumulate(change), given.need, strict=False))


def polish(
    given: Instance,
    incumbent: Incumbent,
    weights: Sequence[float],
    seed: int,
    goal: float,
    progress: Callable[[int], float],
) -> None:
    """Simulated annealing over the set of swapped tensors, until `progress(round)` reaches 1 or the makespan `goal`.

    A move drops a tensor, takes one, or exchanges some, preferring those on which the relaxation was undecided; a worse
    set is accepted with a probability that falls with progress, and some times it starts again from the best set. Every
    fifth move changes one issue op or list place of the best plan instead. Deterministic for a seed where `progress`
    depends on the round alone.
    """
    source = random.Random(seed)
    moves = _Moves(given, weights, source)
    current = {tensor for tensor, _ in incumbent.choices}
    makespan = incumbent.makespan
    if makespan is None:
        return
    hottest = HEAT * max(1, makespan - given.base)
    rounds = cycle = 0
    while incumbent.makespan > goal and (done := progress(rounds)) < 1.0:  # type: ignore[operator]
        rounds += 1
        if rounds % SHIFT_EVERY == 0:
            incumbent.offer(_shifted(given, incumbent.choices, source))
            continue
        if int(done * CYCLES) > cycle:  # a new cycle begins from the best set, cooler
            cycle = int(done * CYCLES)
            current, makespan = {tensor for tensor, _ in incumbent.choices}, incumbent.makespan or makespan
        temperature = hottest * COOLER**cycle * (1 - done * CYCLES % 1)
        candidate = moves.neighbour(current)
        value = incumbent.tried(sorted(candidate), makespan - int(temperature * math.log(1.0 - source.random())))
        if value is not None:
            current, makespan = candidate, value


class _Moves:
    """Neighbours of a set of tensors."""

    def __init__(self, given: Instance, weights: Sequence[float], source: random.Random) -> None:
        self.all = range(len(given.size))
        self.undecided = [tensor for tensor in self.all if 0.001 < weights[tensor] < 0.999] or self.all
        self.source = source

    def neighbour(self, current: set[int]) -> set[int]:
        """The set with one tensor more or less, one exchanged for another, or two to four flipped."""
        source, kind = self.source, self.source.random()
        if 0.25 <= kind < 0.75 and 0 < len(current) < len(self.all):
            return current ^ {self._any(current, inside=True), self._any(current, inside=False)}
        pool = self.undecided if source.random() < 0.5 else self.all
        flips = 1 if kind < 0.25 else source.choice((2, 3, 4))
        return current ^ {source.choice(pool) for _ in range(flips)}

    def _any(self, current: set[int], inside: bool) -> int:
        """Any of the set, or outside it, where there is one."""
        while ((tensor := self.source.choice(self.all)) in current) is not inside:
            pass
        return tensor


def _shifted(given: Instance, choices: Sequence[Choice], source: random.Random) -> list[Choice]:
    changed = list(choices)
    place = source.randrange(len(changed))
    tensor, issue = changed[place]
    if source.random() < 0.5:
        issue += source.choice((-8, -4, -2, -1, 1, 2, 4, 8))
        changed[place] = (tensor, min(max(issue, given.first[tensor] + 1), given.last[tensor]))
        changed.sort(key=lambda choice: choice[1])
    else:
        other = source.randrange(len(changed))
        changed[place], changed[other] = changed[other], changed[place]
    return changed
