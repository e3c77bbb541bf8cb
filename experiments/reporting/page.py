"""The page of a run's folder: what was asked, what happened and why, where time and memory went, and every file."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from experiments.printable import printable
from experiments.reporting.charts import FINEST, KINDS
from experiments.reporting.curves import loss_plot, memory_plot
from experiments.reporting.folder import PAGE, Found, read_folder
from experiments.reporting.lanes import lanes_of, steps_of
from experiments.reporting.provenance import SEE, UNKNOWN, how_of_rows
from experiments.reporting.sweeps import bars_of, heats_of, plots_of
from experiments.reporting.tables import (
    AT_FAULT,
    MOST_SENTENCE,
    cut,
    how_of,
    paper_table,
    reasons_of,
    shortened,
    tables_of,
)
from experiments.reporting.times import account_table, accounts_of, recoveries_of, recovery_table, shares_of, stacks_of
from experiments.reporting.verdicts import judged_plans, verdict_table
from experiments.run_directory import ROWS
from solvers.ir import InvalidInput, Row
from solvers.ir.amounts import show_bytes
from solvers.ir.fields import LARGEST
from solvers.ir.sentences import one_line

MOST_BYTES = 2 * 10**6
"""A page is smaller than this."""
FINENESS = (FINEST, FINEST // 4, FINEST // 16, 0)
"""How many bars of a lane can be told apart: less where the page would be too large, and then no pictures."""
MOST_LETTERS = 60_000
"""Letters of the settings that a page shows; their file holds all."""
MOST_WORD = 400
MOST_REASONS, MOST_CELLS = 60, 1000
"""Reasons and cells that a page tells; the rows hold all."""
AFTER = {
    "training": ", and planned by solvers",
    "pipeline": ": nothing was executed",
    "cluster": ": nothing was executed",
}
"""What else there is to say of how the figures of a kind were obtained."""
MOST_REMARKS = 60
NOWHERE = Path("-")
"""Stdout in place of a file."""
MOST_NAME = 300
"""Letters of a cell's name."""


def page_of(path: Path, place: Path | None = None) -> str:
    """The page of a run's folder; raises `InvalidInput` where it is none, or its rows cannot be read.

    `place`: where the page will lie, from where its links lead; None: in the folder. A stream's page (`-`) has none.
    """
    found, tried = read_folder(path), Tried()
    told = _told(found, tried, Links(path, place))
    for finest in FINENESS:
        drawn = _pictures(found, finest, tried)
        remarks = _remarks([*found.remarks, *found.inside.remarks, *dict.fromkeys(tried.remarks)])
        text = _environment().get_template("page.html").render(told | drawn, remarks=remarks)
        if len(text.encode("utf-8", "replace")) < MOST_BYTES:
            return text
    raise InvalidInput(f"the page of {path} would not stay below {MOST_BYTES} bytes: read its table.md and rows.jsonl")


def _remarks(sentences: Sequence[str]) -> list[str]:
    more = len(sentences) - MOST_REMARKS
    return [*map(cut, sentences[:MOST_REMARKS]), *([f"There are {more} more remarks."] if more > 0 else [])]


class Links:
    """Links from a page to files of its run's folder."""

    def __init__(self, path: Path, place: Path | None) -> None:
        self.known = place != NOWHERE
        there = path if place is None or not self.known else place.parent
        base = os.path.relpath(os.path.realpath(path), os.path.realpath(there))
        self._base = "" if base == "." else f"{base}/"

    def __call__(self, name: str) -> str:
        """A relative link: nothing in the name leads elsewhere. Nothing where nobody knows the page's place."""
        return quote(f"{self._base}{name}".encode("utf-8", "surrogateescape")) if self.known else ""


class Tried:
    """Makes one part of a page after the other; one that rows as nobody writes them break is a remark, no more."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    def __call__(self, what: str, make: Callable[[], Any], otherwise: Any) -> Any:
        """The part, or `otherwise`."""
        try:
            return make()
        except AT_FAULT as error:
            self.remarks.append(f"{what} cannot be shown of what the folder holds ({one_line(error)})")
            return otherwise


def _told(found: Found, tried: Tried, link: Links) -> dict[str, Any]:
    """Everything but the pictures."""
    axes = found.cells.axes if found.cells is not None else ()
    reasons = reasons_of(found.rows, axes)
    verdicts = tried("the plans", lambda: verdict_table(judged_plans(found.inside)), None)
    if not link.known:
        tried.remarks.append("Links are left out, as nobody knows where this page lies: write it by --out FILE.html.")
    paper = tried("the paper's figures", lambda: paper_table(found), None)
    return {
        "title": cut(f"bayplan: {_name(found)}"),
        "summary": _summary(found),
        "facts": _facts(found),
        "tables": [(table, how_of(found.rows, table)) for table in tables_of(found)],
        "reasons": reasons[:MOST_REASONS],
        "more_reasons": max(0, len(reasons) - MOST_REASONS),
        "verdicts": [] if verdicts is None else [shortened(verdicts)],
        "papers": [] if paper is None else [paper],
        "settings": _escaped(cut(found.settings, MOST_LETTERS)),
        "files": _files(found, link),
        "more_files": found.more_files,
        "cells": _cells(found, link),
        "ran": how_of_rows(found.rows),
        "names": KINDS | {"idle": "idles"},
    }


def _pictures(found: Found, finest: int, tried: Tried) -> dict[str, Any]:
    """What is drawn, so finely; 0: nothing."""
    nothing: dict[str, Any] = {"lanes": None, "plots": [], "losses": None, "stacks": (), "times": [], "heats": [],
        "sweeps": [], "bars": [], "coarse": not finest}  # fmt: skip
    if not finest:
        return nothing
    drawn: dict[str, Any] = nothing | tried("where time goes", lambda: _times(found, finest), {})
    memory = tried("memory", lambda: memory_plot(found, finest), None)
    drawn |= {"plots": [] if memory is None else [memory]}
    if found.cells is None:
        drawn |= {"losses": tried("losses", lambda: loss_plot(found, finest), None)}
        return drawn | {"bars": tried("bars", lambda: bars_of(found.kind, found.rows), [])}
    axes = found.cells.axes
    drawn |= {"heats": tried("the table of colours", lambda: heats_of(found.kind, found.rows, axes), [])}
    return drawn | {"sweeps": tried("curves", lambda: plots_of(found.kind, found.rows, axes), [])}


def _times(found: Found, finest: int) -> dict[str, Any]:
    """Lanes, and where the time goes: of steps that were written down, of recoveries, or of a cluster's lives."""
    steps = steps_of(found.reports, found.graph, found.rows)
    ran = how_of_rows(found.rows)
    accounts, recoveries = (
        [replace(one, how=ran) if one.how == "executed" else one for one in told]
        for told in (accounts_of(steps), recoveries_of(found.rows))
    )
    tables = account_table(accounts), recovery_table(recoveries)
    return {
        "lanes": lanes_of(steps, finest),
        "stacks": stacks_of(accounts) or stacks_of(recoveries) or shares_of(found.rows),
        "times": [shortened(one) for one in tables if one is not None],
    }


def _name(found: Found) -> str:
    """The experiment's name; one's own model by its factory's."""
    model = found.values.get("model")
    if isinstance(model, dict) and isinstance(model.get("factory"), str):
        return str(model["factory"])
    if found.rows:
        return found.rows[0].experiment
    return _word(found.values.get("name")) or found.path.absolute().name


def _summary(found: Found) -> str:
    """What the run came to, in a line."""
    ends: dict[str, int] = {}
    for row in found.rows:
        ends[row.outcome] = ends.get(row.outcome, 0) + 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in ends.items()) or "no rows yet"
    cells = f"{found.cells.done} of {len(found.cells.folders)} cells; " if found.cells is not None else ""
    return f"{cells}{len(found.rows)} row{'s' * (len(found.rows) != 1)}: {told}"


def _facts(found: Found) -> list[tuple[str, str]]:
    """What was asked, where it ran, and from what the figures come."""
    rows, values = found.rows, found.values
    how = how_of_rows(rows)
    hardware = values.get("hardware", values.get("cluster"))
    facts = [
        ("experiment", f"{_name(found)} ({found.kind}{', a sweep' if found.cells is not None else ''})"),
        ("figures are", SEE if how == UNKNOWN else f"{how}{AFTER.get(found.kind, '')}"),
        ("how they were obtained", _distinct([row.provenance for row in rows])),
        ("commit", _distinct([row.commit or "outside a checkout" for row in rows])),
        ("seed", _distinct([str(row.seed) for row in rows])),
        ("hardware file", _word(hardware.get("file") if isinstance(hardware, dict) else hardware)),
        ("machine", ", ".join(f"{name} {_word(value)}" for name, value in found.machine.items()) or "not written down"),
        ("budget", _distinct([_bytes(row) for row in rows])),
    ]
    if found.cells is not None:
        facts += [("swept", ", ".join(found.cells.axes)), ("arguments", " ".join(found.cells.arguments))]
    return [(cut(name), cut(str(value))) for name, value in facts if value not in (None, "", "None")]


def _word(value: Any) -> str:
    """A setting that is one word; nothing of what holds others, which may be endless."""
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        return "an endless number"
    return cut(str(value), MOST_WORD) if isinstance(value, str | int | float) else ""


def _bytes(row: Row) -> str:
    size = row.figures.get("budget_bytes", row.asked.get("budget_bytes"))
    return show_bytes(size) if isinstance(size, int) and 0 < size <= LARGEST else ""


def _distinct(values: Sequence[str]) -> str:
    known = [value for value in dict.fromkeys(values) if value]
    return "; ".join(known[:4]) + (f"; and {len(known) - 4} more" if len(known) > 4 else "")


def _files(found: Found, link: Links) -> dict[str, list[tuple[str, str]]]:
    """Names and relative links of the files, by the folder on top; those beside the page come first."""
    folders: dict[str, list[tuple[str, str]]] = {}
    for name in found.files:
        folder = name.partition("/")[0] if "/" in name else ""
        folders.setdefault(folder, []).append((name, link(name)))
    return folders


def _cells(found: Found, link: Links) -> list[tuple[str, str, str]]:
    """A sweep's cells, each with a link to its page where it has one, else to its rows, else to nothing."""
    told = []
    for name in (found.cells.folders if found.cells is not None else ())[:MOST_CELLS]:
        there = [one for one in (PAGE, ROWS) if found.inside.file(f"{name}/{one}") is not None]
        told.append(
            (cut(name, MOST_NAME), link(f"{name}/{there[0]}") if there else "", "" if there else ", without rows")
        )
    return told


@functools.cache
def _environment() -> jinja2.Environment:
    """Everything is escaped but the paths of pictures, which are made of numbers here.

    What commands a terminal or turns the direction of writing is written out.
    """
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_plain,
    )


def _escaped(text: str) -> Markup:
    """A text of any length, escaped as everything is."""
    return escape("\n".join(map(printable, text.split("\n"))))


def _plain(value: Any) -> Any:
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return cut("\n".join(map(printable, value.split("\n"))), 2 * MOST_SENTENCE)
    return value
