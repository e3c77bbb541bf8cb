"""One call of `bayplan table`: which entries are meant, running them, showing and writing what came out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.commands.show import print_table
from experiments.progress import stages
from experiments.reproduction.entry import Entry, entry_names, read_entry
from experiments.reproduction.pages import page, summary_page, summary_tables, tables_of
from experiments.reproduction.run import Options, Outcome, run_entry
from experiments.reproduction.score import score_table
from experiments.rows import rows_to_compact
from experiments.run_directory import RunDirectory, open_run_directory
from experiments.tables import say, to_markdown, to_terminal
from solvers.ir.names import unknown

if TYPE_CHECKING:
    from experiments.reproduction.documents import Format

ALL = "all"
SUMMARY, SCORE = "table.md", "score.md"
EXACT = ("paper",)
"""Figures of rows that keep all their digits: what the paper says."""


def chosen(names: Sequence[str], folder: Path) -> list[str]:
    """The entries that the words mean: names, systems, or `all`; raises `InvalidInput` naming the nearest word."""
    known = entry_names(folder)
    systems = _systems(known, folder)
    found: list[str] = []
    for name in names:
        if name not in known and name not in systems and name != ALL:
            raise unknown("table", name, [*known, *systems, ALL])
        found += known if name == ALL else systems.get(name, [name])
    return list(dict.fromkeys(found))


def list_entries(folder: Path) -> int:
    """Print every entry with its place and title; the exit code."""
    entries = {name: read_entry(name, folder) for name in entry_names(folder)}
    rows = [(name, entry.place, entry.how, entry.title) for name, entry in entries.items()]
    print_table("tables and figures of the papers", ("name", "place", "how", "title"), rows)
    return 0


def run_entries(
    entries: Mapping[str, Entry], named: Collection[str], options: Options, form: "Format | None", out: Path | None
) -> int:
    """Run each entry, show and write it at once; the exit code is 0, whatever the verdicts are.

    Entries of `named` are computed, however long that takes. With a format one document is printed instead at the end;
    where `out` is given it is written there, as `table.FORMAT`, beside the pages and rows.
    """
    directory = None if out is None else open_run_directory("table", str(out))
    console, outcomes = Console(), []
    for name, entry in entries.items():
        outcomes.append(_run(name, entry, replace(options, kept=None) if name in named else options))
        if form is None or directory is not None:
            to_terminal(console, tables_of(outcomes[-1]))
        if directory is not None:
            _write(directory, outcomes[-1])
    if form is not None and directory is None:
        from experiments.reproduction.documents import document

        console.file.write(document(outcomes, form))
        return 0
    if len(outcomes) > 1:
        to_terminal(console, summary_tables(outcomes)[::-1])  # the score last: on a terminal that is what is seen
    if directory is not None:
        _conclude(directory, outcomes, form)
        say(console, f"written to {directory.path}")
    return 0


def _run(name: str, entry: Entry, options: Options) -> Outcome:
    with stages() as shown:
        shown.say(name)
        return run_entry(name, entry, options, shown)


def _write(directory: RunDirectory, outcome: Outcome) -> None:
    """The page and the rows of one entry."""
    directory.text(f"{outcome.name}.md", page(outcome))
    directory.text(f"{outcome.name}.jsonl", rows_to_compact(outcome.to_rows(), EXACT))


def _conclude(directory: RunDirectory, outcomes: Sequence[Outcome], form: "Format | None") -> None:
    """The summary, the score by itself where there are several entries, and the document that was asked for."""
    directory.text(SUMMARY, summary_page(outcomes))
    if len(outcomes) > 1:
        directory.text(SCORE, to_markdown([score_table(outcomes)]))
    if form is not None and form != "md":
        from experiments.reproduction.documents import document

        directory.text(f"table.{form}", document(outcomes, form))


def _systems(known: Sequence[str], folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in known:
        found.setdefault(read_entry(name, folder).system, []).append(name)
    return found
