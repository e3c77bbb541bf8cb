"""One call of `bayplan table`: which entries are meant, running them, showing and writing what came out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.commands.show import print_table
from experiments.progress import stages
from experiments.reproduction.entry import Entry, entry_names, read_entry
from experiments.reproduction.kept import judged_of, kept_of
from experiments.reproduction.pages import page, summary_page, summary_tables, tables_of
from experiments.reproduction.run import Options, Outcome, run_entry
from experiments.reproduction.score import score_table
from experiments.rows import read_rows, rows_to_compact
from experiments.run_directory import RunDirectory, open_run_directory
from experiments.tables import say, to_markdown, to_terminal
from solvers.ir import InvalidInput, Row
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
        if directory is not None and not _write(directory, outcomes[-1]):
            say(console, f"{name} failed: its page and rows in {directory.path} are left as they were")
    if form is not None and directory is None:
        from experiments.reproduction.documents import document

        console.file.write(document(outcomes, form))
        return 0
    if len(outcomes) > 1:
        to_terminal(console, summary_tables(outcomes)[::-1])  # the score last: on a terminal that is what is seen
    if directory is not None:
        _conclude(directory, outcomes, form, options.folder)
        say(console, f"written to {directory.path}")
    return 0


def _run(name: str, entry: Entry, options: Options) -> Outcome:
    with stages() as shown:
        shown.say(name)
        return run_entry(name, entry, options, shown)


def _write(directory: RunDirectory, outcome: Outcome) -> bool:
    """The page and the rows of one entry; not where they would take the place of rows of which fewer failed."""
    rows = outcome.to_rows()
    if _errors(rows) and _errors(_there(directory, outcome.name), none=len(rows) + 1) < _errors(rows):
        return False
    directory.text(f"{outcome.name}.md", page(outcome))
    directory.text(f"{outcome.name}.jsonl", rows_to_compact(rows, EXACT))
    return True


def _errors(rows: Sequence[Row], none: int = 0) -> int:
    """How many rows are errors; `none` where there are no rows."""
    return sum(row.outcome == "error" for row in rows) if rows else none


def _there(directory: RunDirectory, name: str) -> list[Row]:
    """The rows of an entry that the folder holds; none where it has no file for it, or a spoilt one."""
    path = directory.path / f"{name}.jsonl"
    try:
        return read_rows(path) if path.is_file() else []
    except InvalidInput:
        return []


def _merged(directory: RunDirectory, outcomes: Sequence[Outcome], folder: Path) -> list[Outcome]:
    """What the pages of the folder say: of this run's entries and of those that it held before, in their order."""
    ours = {outcome.name: outcome for outcome in outcomes}
    found = []
    for name in [*entry_names(folder), *(set(ours) - set(entry_names(folder)))]:
        rows = _there(directory, name)
        if rows:
            entry = ours[name].entry if name in ours else read_entry(name, folder)
            found.append(Outcome(name, entry, judged_of(rows), kept=kept_of(rows)))
    return found


def _conclude(directory: RunDirectory, outcomes: Sequence[Outcome], form: "Format | None", folder: Path) -> None:
    """The summary of all that the folder holds, the score by itself where several entries ran, the document asked for.

    In Markdown the document, which begins with a summary where there are several entries, takes the summary's name.
    """
    merged = _merged(directory, outcomes, folder)
    directory.text(SUMMARY, summary_page(merged))
    if len(outcomes) > 1:
        directory.text(SCORE, to_markdown([score_table(merged)]))
    if form is not None:
        from experiments.reproduction.documents import document

        directory.text(f"table.{form}", document(outcomes, form))


def _systems(known: Sequence[str], folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in known:
        found.setdefault(read_entry(name, folder).system, []).append(name)
    return found
