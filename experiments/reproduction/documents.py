"""All outcomes of one call as one document: Markdown, CSV, JSON or HTML, with the score on top."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from experiments.reproduction.html import html_page
from experiments.reproduction.judge import Judged
from experiments.reproduction.pages import page, summary_page
from experiments.reproduction.run import Outcome, provenance
from experiments.reproduction.score import score_table
from solvers.ir.codec import document_to_raw

Format = Literal["md", "csv", "json", "html"]
FORMATS: tuple[str, ...] = get_args(Format)
HEAD = (
    "system", "entry", "entry place", "how", "quantity or claim", "place", "unit", "paper value", "paper low",
    "paper high", "derived", "ours low", "ours high", "deviation", "verdict", "reason", "kept", "content", "commit",
    "seed", "provenance",
)  # fmt: skip
"""The columns of CSV; absent values are empty."""


def document(outcomes: Sequence[Outcome], form: Format) -> str:
    """The whole document, with a line break at its end."""
    makers: dict[str, Callable[[Sequence[Outcome]], str]] = {
        "md": _markdown,
        "csv": _csv,
        "json": _json,
        "html": html_page,
    }
    return makers[form](outcomes)


def about(outcome: Outcome) -> dict[str, str]:
    """What JSON says of an entry before its rows."""
    entry = outcome.entry
    return {"place": entry.place, "how": outcome.how, "title": entry.title}


def _markdown(outcomes: Sequence[Outcome]) -> str:
    pages = [page(outcome) for outcome in outcomes]
    return "\n".join(pages if len(pages) == 1 else [summary_page(outcomes), *pages])


def _json(outcomes: Sequence[Outcome]) -> str:
    told = [
        {
            "name": outcome.name,
            **about(outcome),
            "failure": outcome.failure,
            "rows": [document_to_raw(row) for row in outcome.to_rows()],
        }
        for outcome in outcomes
    ]
    score = score_table(outcomes)
    lines = [dict(zip(score.head, line, strict=True)) for line in score.body]
    return json.dumps({"score": lines, "entries": told}, ensure_ascii=False, allow_nan=False) + "\n"


def _csv(outcomes: Sequence[Outcome]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(_line(outcome, row) for outcome in outcomes for row in outcome.rows)
    return text.getvalue()


def _line(outcome: Outcome, row: Judged) -> list[Any]:
    entry, paper = outcome.entry, row.paper
    claim = (None,) * 4 if paper is None else (paper.value, paper.low, paper.high, paper.derived)
    ours = (None, None) if row.ours is None else row.ours
    deviation = " ".join(repr(one) for one in row.deviation)
    kept = None if outcome.kept is None else outcome.kept.sentence()
    return [
        entry.system, outcome.name, entry.place, outcome.how, row.name, row.place, row.unit, *claim, *ours, deviation,
        row.verdict, row.reason, kept, outcome.content, outcome.commit, outcome.seed, provenance(outcome),
    ]  # fmt: skip
