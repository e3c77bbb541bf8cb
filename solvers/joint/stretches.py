"""Which stretches of a step are bounded (README, model T), what is tracked in each, and what they prove together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby, pairwise
from typing import Any

from solvers.engines.duals import UNIT
from solvers.ir.solution import Limits
from solvers.joint.branch import PROGRAMS, split
from solvers.joint.crowded import proof
from solvers.joint.given import Given
from solvers.joint.stretch import Stretch, StretchProof

BEFORE, AFTER, LONGEST = 5, 12, 26
"""Stages before a tight one and at most behind it that belong to its stretch; the most stages of one."""
SHIFT = 4
"""By how many stages a cut is moved at most."""
MOST, LEAST = 10, 2e-4
"""The most stretches, and the least share of the base that one must seem worth."""
LOOKED = 1000
"""How many ops back recomputing is thought of where stretches are chosen."""
TRACKED = 80
"""The most outputs that one stretch follows."""
SMALL = 0.004
"""The share of the largest output below which outputs are not followed."""


@dataclass(frozen=True)
class Together:
    """The proofs of stretches that share no stage, and what they prove."""

    bound_us: int
    proofs: tuple[StretchProof, ...]

    @property
    def certificate(self) -> dict[str, Any]:
        """For anyone to add up."""
        return {"form": "stretches/1", "unit": UNIT, "stretches": [proof.part for proof in self.proofs]}


def together(given: Given, proofs: Sequence[StretchProof]) -> Together:
    """Stretches share no stage, so what each is late adds up."""
    late = tuple(sorted((one for one in proofs if one.late > 0), key=lambda one: one.first))
    ticks = sum(given.time) * UNIT + sum(one.late for one in late)
    return Together(-(-ticks // (UNIT * given.ticks)), late)


def bounded(
    given: Given, limits: Callable[[], Limits | None], engine: str, programs: int = PROGRAMS
) -> Iterator[Together]:
    """What stretches prove together, better each time: first all of them, then by trees, those that prove most first.

    `limits` is asked before each, None ends it; `programs`: the most linear programs of a tree.
    """
    proofs: dict[tuple[int, int], StretchProof] = {}
    known: dict[tuple[int, int], Stretch] = {}
    for first, last in places(given):
        asked = limits()
        if asked is None:
            return
        stretch = Stretch(given, first, last, tracked(given, first, last))
        found = proof(stretch, asked, engine)
        if found is not None:
            known[first, last], proofs[first, last] = stretch, found
            yield together(given, list(proofs.values()))
    for place in sorted(proofs, key=lambda place: (-proofs[place].late, place)):
        asked = limits()
        if asked is None:
            return
        proofs[place] = split(known[place], proofs[place], asked, engine, programs)
        yield together(given, list(proofs.values()))


def places(given: Given) -> list[tuple[int, int]]:
    """First and last stages of the stretches, the most promising first; only ends do two of them share."""
    worth, covered = [0.0] * len(given), [False] * len(given)
    for s in range(len(given) - 1):
        worth[s], until = _worth(given, s)
        if worth[s] > LEAST * sum(given.time):
            for t in range(max(0, s - BEFORE), min(len(given), until + BEFORE)):
                covered[t] = True
    pieces: list[tuple[int, int]] = []
    for region, stages in groupby(range(len(given)), key=covered.__getitem__):
        if region:
            inside = list(stages)
            pieces += pairwise(_cuts(inside[0], inside[-1], worth))
    pieces.sort(key=lambda piece: -sum(worth[piece[0] : piece[1]]))
    return pieces[:MOST]


def _cuts(first: int, last: int, worth: list[float]) -> list[int]:
    """Where a region is cut: about evenly, behind stages of which little is to be expected."""
    count = -(-(last - first) // LONGEST)
    even = [round(first + (last - first) * number / count) for number in range(1, count)]
    near = [min(range(cut - SHIFT, cut + SHIFT + 1), key=lambda t: (worth[t] + worth[t - 1], t)) for cut in even]
    return [first, *near, last]


def _worth(given: Given, s: int) -> tuple[float, int]:
    """About how long stages behind s wait for what they read and stage s has no room for, and until which stage."""
    graph, size = given.graph, given.graph.size
    here = {s, *graph.inputs[s]}
    room = given.budget - given.problem.static_bytes - given.workspace[s] - sum(size[i] for i in here)
    prices: dict[int, int] | None = None
    spare, needed, worst, seen = 0, 0.0, (0.0, s), set(here)
    for t in range(s + 1, min(len(given), s + 1 + AFTER)):
        for i in graph.inputs[t]:
            if i in seen or i > s:
                continue
            seen.add(i)
            if 0 < size[i] <= room:
                room -= size[i]
            else:
                prices = _prices(given, here, s) if prices is None else prices
                needed += prices.get(i, given.in_time[i])
        worst = max(worst, (needed - spare, t))
        spare += given.time[t]
    return worst


def _prices(given: Given, here: set[int], s: int) -> dict[int, int]:
    """How long outputs take to return, or to be made of what is here and what returns, whichever is less.

    Of the last `LOOKED` ops: others are to return.
    """
    graph, prices = given.graph, dict.fromkeys(here, 0)
    for i in range(max(0, s + 1 - LOOKED), s + 1):
        if i not in here:
            again = given.time[i] + sum(prices.get(j, given.in_time[j]) for j in graph.inputs[i])
            prices[i] = min(given.in_time[i], again) if graph.replay[i] else given.in_time[i]
    return prices


def tracked(given: Given, first: int, last: int) -> set[int]:
    """What the stages read, and what it could be made of in less time than it takes to return."""
    graph, least = given.graph, SMALL * max(given.graph.size)
    roots = {i for q in range(first + 1, last + 1) for i in graph.inputs[q] if graph.size[i] >= least}
    roots |= {q for q in range(first, last + 1) if graph.size[q] >= least}
    best = dict.fromkeys(roots, 0.0)
    heap: list[tuple[float, int]] = [(0.0, i) for i in sorted(roots)]
    found: set[int] = set()
    while heap and len(found) < TRACKED:
        spent, i = heappop(heap)
        if i in found or spent > best[i]:
            continue
        found.add(i)
        if not graph.replay[i]:
            continue
        share = spent + given.time[i] / max(1, given.in_time[i])
        for j in graph.inputs[i]:
            if share <= 1.5 and graph.size[j] >= least and share < best.get(j, float("inf")):
                best[j] = share
                heappush(heap, (share, j))
    return found | roots
