"""`bayplan table`: the papers' tables and figures beside ours."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.commands.interrupts import Interrupts
from experiments.commands.streams import print_json
from solvers.ir.errors import InvalidInput

if TYPE_CHECKING:
    from experiments.reproduction.entry import Entry
    from experiments.reproduction.run import Options

HELP = """Compute tables and figures of the papers, and judge ours against the papers' values.

NAME is an entry of conf/table, a system (all its entries), or `all`; without a name the entries are listed. What was
computed before is taken from runs/table, unless the code, a parameter or a file behind it has changed; Ctrl-C loses
nothing that was computed. Exit code 0 whatever the verdicts are."""


@click.command("table", help=HELP)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--fresh", is_flag=True, help="Compute everything again.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="The seed of what is random.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write pages, rows and a summary there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of tables; not with --out.")
def command(names: tuple[str, ...], fresh: bool, seed: int, out: Path | None, as_json: bool) -> int:
    """See HELP."""
    from experiments.reproduction.entry import SHIPPED, read_entry
    from experiments.reproduction.run import Options
    from experiments.reproduction.session import chosen, list_entries, run_entries

    if as_json and out is not None:
        raise InvalidInput("--json prints the rows that --out writes: leave one of them out")
    if not names:
        return _list_json(SHIPPED) if as_json else list_entries(SHIPPED)
    wanted = chosen(names, SHIPPED)
    entries = {name: read_entry(name, SHIPPED) for name in wanted}
    interrupts = Interrupts(patient=False)
    options = Options(SHIPPED, seed=seed, fresh=fresh, interrupted=lambda: interrupts.asked_by is not None)
    try:
        with interrupts:
            return _run_json(entries, options) if as_json else run_entries(entries, options, out)
    except KeyboardInterrupt:
        print("bayplan: interrupted: what was computed is kept, the same command goes on from there", file=sys.stderr)
        return 130


def _list_json(folder: Path) -> int:
    from experiments.reproduction.entry import entry_names, read_entry

    entries = {name: read_entry(name, folder) for name in entry_names(folder)}
    print_json({"entries": [{"name": name, **_about(entry)} for name, entry in entries.items()]})
    return 0


def _run_json(entries: "Mapping[str, Entry]", options: "Options") -> int:
    """Every entry's rows (`bayplan-row/1`), and why it failed where it did."""
    from experiments.progress import stages
    from experiments.reproduction.run import run_entry
    from solvers.ir.codec import document_to_raw

    told = []
    for name, entry in entries.items():
        with stages() as shown:
            shown.say(name)
            outcome = run_entry(name, entry, options, shown)
        rows = [document_to_raw(row) for row in outcome.to_rows()]
        told.append({"name": name, **_about(entry), "failure": outcome.failure, "rows": rows})
    print_json({"entries": told})
    return 0


def _about(entry: "Entry") -> dict[str, str]:
    return {"place": entry.place, "how": entry.how, "title": entry.title}
