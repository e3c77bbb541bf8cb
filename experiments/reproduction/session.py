"""One call of `bayplan table`: which entries are meant, running them, showing and writing what came out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from experiments.commands.show import print_table
from experiments.progress import stages
from experiments.reproduction.entry import Entry, entry_names, read_entry
from experiments.reproduction.pages import difference_table, page, summary_page, summary_table, tables_of
from experiments.reproduction.run import Options, Outcome, run_entry
from experiments.rows import rows_to_text
from experiments.run_directory import RunDirectory, open_run_directory
from experiments.tables import say, to_terminal
from solvers.ir.names import unknown

ALL = "all"
SUMMARY = "table.md"


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


def run_entries(entries: Mapping[str, Entry], options: Options, out: Path | None) -> int:
    """Run each entry, show it at once and write it where asked; the exit code is 0, whatever the verdicts are."""
    directory = None if out is None else open_run_directory("table", str(out))
    console, outcomes = Console(), []
    for name, entry in entries.items():
        with stages() as shown:
            shown.say(name)
            outcome = run_entry(name, entry, options, shown)
        outcomes.append(outcome)
        to_terminal(console, tables_of(outcome))
        if directory is not None:
            _write(directory, outcome)
    if len(outcomes) > 1:
        differences = difference_table(outcomes)
        to_terminal(console, [summary_table(outcomes), *([differences] if differences else [])])
    if directory is not None:
        directory.text(SUMMARY, summary_page(outcomes))
        say(console, f"written to {directory.path}")
    return 0


def _write(directory: RunDirectory, outcome: Outcome) -> None:
    """The page and the rows of one entry."""
    directory.text(f"{outcome.name}.md", page(outcome))
    directory.text(f"{outcome.name}.jsonl", rows_to_text(outcome.to_rows()))


def _systems(known: Sequence[str], folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in known:
        found.setdefault(read_entry(name, folder).system, []).append(name)
    return found
