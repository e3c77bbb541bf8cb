"""From a fractional selection to a plan, and from a plan to a better one: local search with the exact recursion."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from solvers.swap.evaluate import Choice, Instance, evaluate
from solvers.swap.issue import issue_swap_ins

THRESHOLDS = (0.5, 0.3, 0.1, 0.01, 0.0)


@dataclass
class Incumbent:
    """The best plan so far."""

    given: Instance
    makespan: int | None = None
    choices: list[Choice] = field(default_factory=list)

    def offer(self, choices: Sequence[Choice] | None) -> bool:
        """Keep the choices where they are valid and better; True where they were."""
        if choices is None:
            return False
        timeline = evaluate(self.given, choices)
        if timeline is None or (self.makespan is not None and timeline.makespan >= self.makespan):
            return False
        self.makespan, self.choices = timeline.makespan, list(choices)
        return True

    def offer_set(self, selected: Sequence[int]) -> bool:
        """Issue the swap-ins of a set of tensors and offer the result."""
        return self.offer(issue_swap_ins(self.given, selected))


def round_selection(given: Instance, weights: Sequence[float], incumbent: Incumbent) -> None:
    """Offer the sets that the fractional selection suggests, each completed by descending weight until memory fits."""
    ranked = sorted(range(len(weights)), key=lambda tensor: (-weights[tensor], -given.size[tensor]))
    tried: set[int] = set()
    for threshold in THRESHOLDS:
        count = sum(weight > threshold for weight in weights)
        while count <= len(ranked) and not _fits(given, ranked[:count]):
            count += 1
        if count not in tried:
            tried.add(count)
            incumbent.offer_set(ranked[:count])


def _fits(given: Instance, selected: Sequence[int]) -> bool:
    change = [0] * (len(given.time) + 1)
    for tensor in selected:
        change[given.first[tensor] + 1] += given.size[tensor]
        change[given.last[tensor]] -= given.size[tensor]
    absent = 0
    for need, step in zip(given.need, change, strict=False):
        absent += step
        if absent < need:
            return False
    return True


def polish(
    given: Instance,
    incumbent: Incumbent,
    weights: Sequence[float],
    seed: int,
    goal: float,
    keep_going: Callable[[int, int], bool],
) -> None:
    """Local search until `keep_going(round, makespan)` says no or the makespan reaches `goal`.

    A move drops a tensor, takes one, or exchanges two, preferring those on which the relaxation was undecided; or it
    changes one tensor's issue or list place. Deterministic for a seed and a number of rounds.
    """
    source = random.Random(seed)
    count = len(given.size)
    undecided = [tensor for tensor in range(count) if 0.001 < weights[tensor] < 0.999] or list(range(count))
    best = {tensor for tensor, _ in incumbent.choices}
    rounds = 0
    while incumbent.makespan is not None and incumbent.makespan > goal and keep_going(rounds, incumbent.makespan):
        rounds += 1
        if source.random() < 0.25:
            incumbent.offer(_shifted(given, incumbent.choices, source))
            continue
        pool = undecided if source.random() < 0.5 else range(count)
        candidate = _exchanged(best, pool, source)
        if candidate and _fits(given, list(candidate)) and incumbent.offer_set(sorted(candidate)):
            best = candidate


def _exchanged(chosen: set[int], pool: Sequence[int], source: random.Random) -> set[int]:
    changed = set(chosen)
    for _ in range(source.choice((1, 2, 2, 3))):
        changed ^= {source.choice(pool)}
    return changed


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


def now() -> float:
    """The clock of the limits."""
    return time.perf_counter()
