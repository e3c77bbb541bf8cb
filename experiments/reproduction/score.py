"""The score: how many rows of each paper ours reproduces, and what became of the others."""

from collections import Counter
from collections.abc import Iterable, Sequence

from experiments.reproduction.judge import (
    BRACKETED,
    CONSISTENT,
    DIFFERS,
    FAILED,
    HOLDS,
    NO_REASON,
    OURS_ONLY,
    PAPER_ONLY,
    REPRODUCED,
    WITHIN,
    Judged,
)
from experiments.reproduction.run import Outcome
from experiments.tables import NOTHING, Table

UNEXPLAINED = f"{DIFFERS}, no reason"
COLUMNS = (
    (REPRODUCED, REPRODUCED),
    (HOLDS, HOLDS),
    (BRACKETED, BRACKETED),
    (WITHIN, WITHIN),
    (CONSISTENT, CONSISTENT),
    (DIFFERS, f"{DIFFERS}, with reason"),
    (UNEXPLAINED, UNEXPLAINED),
    (PAPER_ONLY, f"{PAPER_ONLY}, with reason"),
    (FAILED, FAILED),
)
"""What a row counts as, and its heading; rows that are ours only, or claims of our own, count for none."""
OURS = "ours"
"""The place of a claim that is in no paper."""
ONLY_WHERE_THERE = (CONSISTENT, UNEXPLAINED, FAILED)


def score_table(outcomes: Sequence[Outcome]) -> Table:
    """One line for each system, and one for all where there are several."""
    systems = list(dict.fromkeys(outcome.entry.system for outcome in outcomes))
    groups = [(system, [one for one in outcomes if one.entry.system == system]) for system in systems]
    groups += [("all", list(outcomes))] if len(groups) > 1 else []
    counts = [counts_of(row for one in group for row in one.rows) for _, group in groups]
    shown = [(name, head) for name, head in COLUMNS if name not in ONLY_WHERE_THERE or any(one[name] for one in counts)]
    body = tuple(
        (name, str(len(group)), str(_judged(count)), *(str(count[column] or NOTHING) for column, _ in shown))
        for (name, group), count in zip(groups, counts, strict=True)
    )
    head = ("paper", "entries", "rows with the paper's word", *(title for _, title in shown))
    return Table("Score", head, body, _note(outcomes))


def counts_of(rows: Iterable[Judged]) -> Counter[str]:
    """Rows by what they count as."""
    return Counter(_counted(row) for row in rows)


def _counted(row: Judged) -> str:
    if row.paper is None and row.place.startswith(OURS):
        return OURS_ONLY
    unexplained = row.verdict == DIFFERS and (row.reason is None or NO_REASON in row.reason)
    return UNEXPLAINED if unexplained else row.verdict


def _judged(count: Counter[str]) -> int:
    return sum(count.values()) - count[OURS_ONLY]


def _broken_claims(outcomes: Sequence[Outcome]) -> list[str]:
    """The claims of our own that our own figures contradict, or that could not be judged."""
    found = [
        f"{outcome.name}: {row.name} ({row.verdict})"
        for outcome in outcomes
        for row in outcome.rows
        if _counted(row) == OURS_ONLY and row.verdict in (DIFFERS, FAILED)
    ]
    return [f"Claims of our own that do not hold: {'; '.join(found)}."] if found else []


def _note(outcomes: Sequence[Outcome]) -> str:
    rows = [row for outcome in outcomes for row in outcome.rows]
    derived = sum(row.paper is not None and row.paper.derived is not None for row in rows)
    kept = sum(outcome.how.endswith(", kept") for outcome in outcomes)
    parts = [
        "Reproduced: the paper's number within the tolerance stated. Shape holds: an order, a crossing, a range of the "
        "paper's. Bracketed: its number lies between ours over what it leaves open. Within range: inside its range. "
        "Consistent within the paper: its printed numbers agree with each other, and nothing of ours was compared.",
        f"{counts_of(rows)[OURS_ONLY]} more rows are ours only, or claims of our own.",
        *_broken_claims(outcomes),
    ]
    parts += [f"{derived} of the paper's numbers are derived from printed ones, and marked."] if derived else []
    parts += [f"{kept} entries are of kept cells or rows, and marked."] if kept else []
    return " ".join(parts)
