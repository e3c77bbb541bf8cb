"""What to do about too little memory, stage by stage: leave for the host or compute again, by price per byte.

A `Choice` is a draft without times: what is computed again where, and which gaps are swapped. `fill` adds to it until
every stage fits; a gap is (op, stage that touches it last before it is away).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from solvers.joint.draft import Kept, kept_of
from solvers.joint.given import Given

Gap = tuple[int, int]
"""(op, the stage that touches its output last before the gap)."""


@dataclass
class Choice:
    """`again[t]`: the ops i < t computed again in stage t. `away`: the gaps that are swapped.

    `waits`: the stages behind which these leave, where it is not the one that touches them last.
    """

    again: list[set[int]]
    away: set[Gap] = field(default_factory=set)
    waits: dict[Gap, int] = field(default_factory=dict)

    def copy(self) -> "Choice":
        """Another one like it."""
        return Choice([set(run) for run in self.again], set(self.away), dict(self.waits))


@dataclass(frozen=True)
class Prices:
    """What a byte costs: `swap(i, first, last)` to swap op i's output over a gap, `again` a tick of recomputation.

    What is priced infinite is never swapped.
    `shown`: what is left of the time of ops that communication could hide.
    """

    swap: Callable[[int, int, int], float]
    again: float = 1.0
    shown: float = 1.0


@dataclass(frozen=True)
class Shadow:
    """What a search adds to a choice's time, for its use of the link and of memory at one stage.

    `leaves[i]`: ticks if op i's output is away at `stage`, or returns for it; `stays`: ticks for each byte that is kept
    then and not used by it.
    """

    stage: int
    leaves: list[int]
    stays: float


def keep_all(given: Given) -> Choice:
    """Nothing again, nothing away."""
    return Choice([set() for _ in range(len(given))])


def swap_all(given: Given) -> Choice:
    """Every gap away whole: a plan from the least budget on, unless the host is limited (README, (L))."""
    choice = keep_all(given)
    for i, stages in enumerate(kept_of(given, choice.again).touched):
        choice.away |= {(i, a) for a, b in pairwise(stages) if b > a + 1 and given.graph.size[i]}
    return choice


def spans(kept: Kept, away: Iterable[Gap]) -> list[tuple[int, int, int]]:
    """(op, stage before, stage after) of the gaps that there are, in order of the stage before."""
    found = []
    for op, first in away:
        gap = kept.gap(op, first + 1)
        if gap is not None and gap[0] == first:
            found.append((op, *gap))
    return sorted(found, key=lambda span: (span[1], span[2], span[0]))


def levels(given: Given, kept: Kept, gaps: Iterable[tuple[int, int, int]]) -> np.ndarray:
    """The most bytes in use by stage where each gap is away whole."""
    change = np.zeros(len(given) + 1, dtype=np.int64)
    for op, first, last in gaps:
        change[first + 1] += given.graph.size[op]
        change[last] -= given.graph.size[op]
    return np.array(kept.peaks, dtype=np.int64) - np.cumsum(change)[:-1]


def fill(given: Given, choice: Choice, prices: Prices, stop: Callable[[], bool]) -> Choice | None:
    """Swap or recompute, in the fullest stage first, the least price per byte first, until all stages fit.

    None where what is left cannot fit, or on `stop`.
    """
    choice = choice.copy()
    while not stop():
        kept = kept_of(given, choice.again)
        if kept.fault is not None:
            return None
        gaps = spans(kept, choice.away)
        choice.away = {(op, first) for op, first, _ in gaps}
        excess = levels(given, kept, gaps) - given.budget
        stage = int(np.argmax(excess))
        if excess[stage] <= 0:
            return choice
        if not _relieve(given, choice, kept, stage, int(excess[stage]), prices, stop):
            return None
    return None


def _relieve(
    given: Given, choice: Choice, kept: Kept, stage: int, excess: int, prices: Prices, stop: Callable[[], bool]
) -> bool:
    """Free so many bytes in a stage; False where nothing there can go, or on `stop`."""
    actions = []
    for i in range(stage):
        if stop():
            return False
        gap = kept.gap(i, stage) if given.graph.size[i] else None
        if gap is None or (i, gap[0]) in choice.away:
            continue
        size = given.graph.size[i]
        price = prices.swap(i, *gap)
        if price < math.inf:
            actions.append((price / size, i, gap, False))
        needed = closure(given, choice, kept, i, gap[1], stage)
        if needed is not None:
            time = sum(given.cost[j] * (prices.shown if given.hideable[j] else 1.0) for j in needed)
            actions.append((prices.again * time / size, i, gap, True))
    actions.sort()
    done: set[int] = set()
    for _, i, gap, again in actions:
        if excess <= 0:
            break
        if i in done:
            continue
        if not again:
            choice.away.add((i, gap[0]))
        elif not drop(given, choice, kept, i, gap[1], stage):
            continue
        done.add(i)
        excess -= given.graph.size[i]
    return bool(done)


def where(given: Given, reader: int, stage: int) -> int | None:
    """The stage that computes again what stage `reader` reads: itself, or before communication; None if there is none.

    It lies behind `stage`, in which the output is to be gone.
    """
    while reader > stage and given.graph.comm[reader]:
        reader -= 1
    return reader if reader > stage and reader >= given.graph.replays_from else None


def closure(given: Given, choice: Choice, kept: Kept, i: int, reader: int, stage: int) -> set[int] | None:
    """What is to be computed so that stage `reader` has op i's output again; None where that is impossible."""
    at = where(given, reader, stage)
    if at is None:
        return None
    found: set[int] = set()
    stack = [i]
    while stack:
        j = stack.pop()
        if j in found or j in choice.again[at] or j == at:
            continue
        if not given.graph.replay[j] or (given.graph.comm[j] and at != reader):
            return None
        found.add(j)
        stack += [k for k in given.graph.inputs[j] if k != at and not _there(kept, k, at)]
    return found


def _there(kept: Kept, i: int, at: int) -> bool:
    """Whether stage `at` keeps or touches op i's output."""
    return kept.gap(i, at) is not None or at in kept.touched[i]


def drop(given: Given, choice: Choice, kept: Kept, i: int, reader: int, stage: int) -> bool:
    """Compute op i again for stage `reader`, with what that needs; False where that is impossible.

    What is computed again later on is kept until then instead.
    """
    needed, at = closure(given, choice, kept, i, reader, stage), where(given, reader, stage)
    if needed is None or at is None:
        return False
    choice.again[at] |= needed
    for j in needed:
        for later in kept.touched[j]:
            if later > at:
                choice.again[later].discard(j)
                break
    return True
