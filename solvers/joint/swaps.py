"""The swap half of a joint problem, its recomputations fixed: the kind `swap` with a stage for an op.

The two halves agree in every rule (README, (S)), so the swap room's own timing and searches serve here.
"""

from bisect import bisect_right
from collections.abc import Collection
from itertools import accumulate

from solvers.joint.choice import Choice, Gap, spans
from solvers.joint.draft import Away, Draft, Kept, Measured, kept_of, measure
from solvers.joint.given import Given
from solvers.swap.evaluate import Instance
from solvers.swap.host import HostRoom
from solvers.swap.issue import issue_swap_ins
from solvers.swap.launches import Launches, launches

Span = tuple[int, int, int]
"""(op, stage before the gap, stage after it)."""


def swap_half(given: Given, kept: Kept, gaps: Collection[Span]) -> Instance:
    """The swap problem whose tensors are these gaps, as that room's plain lists."""
    time = [ticks + given.told(t) for t, ticks in enumerate(kept.ticks)]
    before = [0, *accumulate(time)]
    need = [max(0, peak - given.budget) for peak in kept.peaks]
    size, first, last = ([] for _ in range(3))
    for op, start, end in gaps:
        size.append(given.graph.size[op])
        first.append(start)
        last.append(end)
    room = None if given.host is None else HostRoom(given.host, size, first, last, [0] * len(size))
    return Instance(
        time=time,
        need=need,
        before=before,
        busy=[stage for stage, missing in enumerate(need) if missing > 0],
        size=size,
        first=first,
        last=last,
        out_time=[given.out_time[op] for op, _, _ in gaps],
        in_time=[given.in_time[op] for op, _, _ in gaps],
        ticks=given.ticks,
        launches=_launches(given, kept, gaps, time) if given.launched else None,
        unswapped=_unswapped(given, kept) if given.launched else before,
        host=room,
    )


def _launches(given: Given, kept: Kept, gaps: Collection[Span], time: list[int]) -> Launches:
    """The host's side, by stage. Every transfer takes as much of the host, the mean, and delays no read."""
    stages = [given.launched_as(t, sorted(run)) for t, run in enumerate(kept.runs)]
    moves = sum(given.move[op] for op, _, _ in gaps) // max(1, len(gaps))
    tails = [tail + given.told(t) for t, (_, tail) in enumerate(stages)]
    return launches(
        moves, [host for host, _ in stages], tails, time, frozenset(filter(given.host_stops, range(len(given))))
    )


def _unswapped(given: Given, kept: Kept) -> list[int]:
    """When each stage may begin where nothing is swapped, and the end."""
    ends, host = [0], 0
    for t, run in enumerate(kept.runs):
        end, host = given.ran(t, sorted(run), ends[-1], host)
        end, host, _ = given.after_waits(t, end, host, 0, 0)
        ends.append(end)
    return ends


def timed(given: Given, choice: Choice, quick: bool = False) -> tuple[Draft, Measured]:
    """The draft of a choice, its swap-ins issued early or at their use, whichever ends sooner; measured.

    `quick`: at their use, nothing else is tried.
    """
    kept = kept_of(given, choice.again)
    gaps = _waiting(spans(kept, choice.away), choice)
    late = Draft(choice.again, tuple(Away(op, first, last) for op, first, last in gaps))
    best = late, measure(given, late, kept)
    if quick or not gaps or best[1].violation is not None:
        return best
    for eager in (True, False):
        issued = issue_swap_ins(swap_half(given, kept, gaps), range(len(gaps)), eager)
        if issued is not None:
            away = tuple(Away(gaps[number][0], gaps[number][1], issue) for number, issue in issued)
            draft = Draft(choice.again, away)
            found = measure(given, draft, kept)
            if found.violation is None and found.objective_us < best[1].objective_us:
                best = draft, found
    return best


def choice_of(given: Given, draft: Draft) -> Choice:
    """A draft without the times of its swap-ins."""
    touched, away, waits = kept_of(given, draft.again).touched, set[Gap](), dict[Gap, int]()
    for op, out_after, _ in draft.away:
        gap = op, touched[op][bisect_right(touched[op], out_after) - 1]
        away.add(gap)
        if out_after > gap[1]:
            waits[gap] = out_after
    return Choice([set(run) for run in draft.again], away, waits)


def _waiting(gaps: list[Span], choice: Choice) -> list[Span]:
    """The gaps, beginning with the stages behind which what waits leaves."""
    waiting = [(op, max(first, min(choice.waits.get((op, first), first), last - 2)), last) for op, first, last in gaps]
    return sorted(waiting, key=lambda span: (span[1], span[2], span[0])) if choice.waits else gaps
