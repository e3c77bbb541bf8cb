"""The paper's values against ours: each row gets a verdict, and where it differs, the reason or its absence."""

from typing import Any

import msgspec

from experiments.reproduction.checks import AnyCheck, Finding
from experiments.reproduction.entry import Claim, Entry, Quantity
from experiments.reproduction.result import Interval, Result
from solvers.ir.errors import InvalidInput
from solvers.ir.fields import Record

REPRODUCED, WITHIN, HOLDS, DIFFERS = "reproduced", "within range", "shape holds", "differs"
BRACKETED, OURS_ONLY, FAILED, PAPER_ONLY = "bracketed", "ours only", "failed", "paper only"
CONSISTENT = "consistent within the paper"
"""The paper's numbers agree with each other; nothing of ours was compared."""
VERDICTS = (REPRODUCED, HOLDS, BRACKETED, WITHIN, CONSISTENT, DIFFERS, PAPER_ONLY, OURS_ONLY, FAILED)
NO_REASON = "reason not known yet"
SHOWN = 3
"""Broken places that a reason lists."""


class Judged(Record, frozen=True, kw_only=True):
    """One row of a table. `deviation` is relative: of the value, or of both ends of a range where it is one."""

    name: str
    place: str
    verdict: str
    unit: str = ""
    paper: Claim | None = None
    ours: Interval | None = None
    deviation: tuple[float, ...] = ()
    tolerance: float | None = None
    reason: str | None = None
    looked: int | None = None
    broken: int = 0


def judge(entry: Entry, result: Result | None, failure: str | None = None) -> list[Judged]:
    """All rows of an entry; without a result each one is `failed`, or `paper only`, with the sentence why."""
    if result is None:
        verdict = FAILED if entry.why_not is None else PAPER_ONLY
        reason = entry.why_not or failure
        rows = [
            Judged(name=one.name, place=one.place, verdict=verdict, unit=one.unit, paper=one.paper, reason=reason)
            for one in entry.quantities
        ]
        return rows + [Judged(name=one.claim, place=one.place, verdict=verdict, reason=reason) for one in entry.shapes]
    rows = [
        *(judge_quantity(one, result) for one in entry.quantities),
        *(judge_shape(one, result) for one in entry.shapes),
    ]
    return [_within_paper(row) for row in rows] if entry.within_paper else rows


def _within_paper(row: Judged) -> Judged:
    """The row of an entry into which nothing of ours enters: no agreement there reproduces anything."""
    agrees = row.verdict in (REPRODUCED, HOLDS, BRACKETED, WITHIN)
    return msgspec.structs.replace(row, verdict=CONSISTENT) if agrees else row


def judge_quantity(quantity: Quantity, result: Result) -> Judged:
    """One number or range."""
    known: dict[str, Any] = {"name": quantity.name, "place": quantity.place, "unit": quantity.unit}
    known |= {"paper": quantity.paper, "tolerance": quantity.tolerance if quantity.paper is not None else None}
    pick = quantity.pick()
    try:
        ours = None if pick is None else pick.of(result)
    except InvalidInput as error:
        return Judged(**known, verdict=FAILED, reason=str(error))
    if ours is None or pick is None:
        verdict, reason = _without_number(quantity.because, _why_none(quantity, result), result)
        return Judged(**known, verdict=verdict, reason=reason)
    if quantity.paper is None:
        return Judged(**known, verdict=OURS_ONLY, ours=ours, reason=quantity.unreadable)
    deviation = deviations(quantity.paper, ours)
    verdict = _verdict(quantity.paper, ours, deviation, quantity.tolerance)
    because = (quantity.because or NO_REASON) if verdict == DIFFERS else None
    return Judged(**known, verdict=verdict, ours=ours, deviation=deviation, reason=because)


def judge_shape(check: AnyCheck, result: Result) -> Judged:
    """One claim about a shape."""
    try:
        finding = check.examine(result)
    except InvalidInput as error:
        return Judged(name=check.claim, place=check.place, verdict=FAILED, reason=str(error))
    known: dict[str, Any] = {"name": check.claim, "place": check.place}
    known |= {"looked": finding.looked, "broken": len(finding.broken)}
    if not finding.looked:
        verdict, reason = _without_number(check.because, "no label has all the numbers", result)
        return Judged(**known, verdict=verdict, reason=reason)
    if finding.holds:
        return Judged(**known, verdict=HOLDS)
    return Judged(**known, verdict=DIFFERS, reason=f"{check.because or NO_REASON}; {_places(finding)}")


def deviations(paper: Claim, ours: Interval) -> tuple[float, ...]:
    """Relative deviations: of a value; of both ends for two ranges; of a number from the end that it lies beyond."""
    if paper.value is not None:
        return tuple(_relative(value, paper.value) for value in dict.fromkeys(ours))
    low, high = paper.low, paper.high
    if low is None or high is None:
        beyond = [(ours[1], high)] if high is not None and ours[1] > high else []
        beyond += [(ours[0], low)] if low is not None and ours[0] < low else []
        return tuple(_relative(value, end) for value, end in beyond)
    if ours[0] != ours[1]:
        return _relative(ours[0], low), _relative(ours[1], high)
    nearest = min(max(ours[0], low), high)
    return (_relative(ours[0], nearest),)


def _verdict(paper: Claim, ours: Interval, deviation: tuple[float, ...], tolerance: float) -> str:
    close = all(abs(one) <= tolerance for one in deviation)
    if paper.value is not None:
        between = ours[0] <= paper.value <= ours[1]
        return REPRODUCED if close else BRACKETED if between else DIFFERS
    both = paper.low is not None and paper.high is not None
    if both and close and ours[0] != ours[1]:
        return REPRODUCED
    low = paper.low is None or ours[0] >= paper.low - tolerance * abs(paper.low)
    high = paper.high is None or ours[1] <= paper.high + tolerance * abs(paper.high)
    return WITHIN if low and high else DIFFERS


def _relative(value: float, reference: float) -> float:
    """The difference over the reference; the difference itself where the reference is zero."""
    return (value - reference) / (abs(reference) or 1.0)


def _without_number(because: str | None, why: str, result: Result) -> tuple[str, str]:
    """Failed; or, where no cell failed and the entry knows why none has a number, different from the paper."""
    if because is None or result.failed:
        return FAILED, why
    return DIFFERS, f"{because}; {why}"


def _why_none(quantity: Quantity, result: Result) -> str:
    series = result.named(quantity.of or "")
    outcomes = [outcome for outcome in series.outcomes(quantity.where).values() if outcome is not None]
    return f"every cell ends in {outcomes[0]}" if outcomes else "every cell failed"


def _places(finding: Finding) -> str:
    shown = "; ".join(finding.broken[:SHOWN])
    more = len(finding.broken) - SHOWN
    return shown + (f"; and {more} more" if more > 0 else "")
