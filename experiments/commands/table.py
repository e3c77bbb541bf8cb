"""`bayplan table`: the papers' tables and figures beside ours."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.commands.completion import names_or_files
from experiments.commands.interrupts import Interrupts
from experiments.commands.streams import print_json
from solvers.ir.errors import InvalidInput

if TYPE_CHECKING:
    from experiments.reproduction.documents import Format
    from experiments.reproduction.entry import Entry

HELP = """Compute tables and figures of the papers, and judge ours against the papers' values.

NAME is an entry of conf/table, a system (all its entries), or `all`; without a name the entries are listed. What was
computed before is taken from runs/table, unless the code, a parameter or a file behind it has changed; Ctrl-C and kill
-9 lose nothing that was computed. Of a system and of `all`, entries that take more than a minute are made from the
results kept in the repository, and marked so; named themselves, or by --long, they are computed. Exit code 0 whatever
the verdicts are."""
FORMATS = ("md", "csv", "json", "html")


@click.command("table", help=HELP)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=names_or_files(lambda: _names()))
@click.option("--format", "form", type=click.Choice(FORMATS), help="Print one document, the score on top.")
@click.option("--fresh", is_flag=True, help="Compute everything again.")
@click.option("--long", "long", is_flag=True, help="Compute also what takes more than a minute; nothing is from kept.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="The seed of what is random.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write pages, rows and a summary there.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json; not with --out.")
def command(
    names: tuple[str, ...], form: "Format | None", fresh: bool, long: bool, seed: int, out: Path | None, as_json: bool
) -> int:
    """See HELP."""
    from experiments.reproduction.entry import SHIPPED, read_entry
    from experiments.reproduction.run import KEPT, Options
    from experiments.reproduction.session import chosen, run_entries

    form = _form(form, as_json, out)
    if not names:
        return _list(form, out)
    wanted = chosen(names, SHIPPED)
    entries = {name: read_entry(name, SHIPPED) for name in wanted}
    interrupts = Interrupts(patient=False)
    options = Options(
        SHIPPED,
        kept=None if long else KEPT,
        seed=seed,
        fresh=fresh,
        interrupted=lambda: interrupts.asked_by is not None,
    )
    try:
        with interrupts:
            return run_entries(entries, names, options, form, out)
    except KeyboardInterrupt:
        print("bayplan: interrupted: what was computed is kept, the same command goes on from there", file=sys.stderr)
        return 130


def _names() -> list[str]:
    """What can be named: all, a system, an entry."""
    from experiments.reproduction.entry import entry_names

    names = entry_names()
    return [*dict.fromkeys(["all", *(name.partition("-")[0] for name in names)]), *names]


def _form(form: "Format | None", as_json: bool, out: Path | None) -> "Format | None":
    """The format that both options ask for."""
    if as_json and out is not None:
        raise InvalidInput("--json prints the rows that --out writes: leave one of them out")
    if as_json and form not in (None, "json"):
        raise InvalidInput(f"--json and --format {form} ask for two documents: leave one of them out")
    return "json" if as_json else form


def _list(form: "Format | None", out: Path | None) -> int:
    """The entries, for people or as JSON."""
    from experiments.reproduction.entry import SHIPPED, entry_names, read_entry
    from experiments.reproduction.session import list_entries

    if out is not None or form not in (None, "json"):
        raise InvalidInput("without a name the entries are only listed: name some, or all")
    if form is None:
        return list_entries(SHIPPED)
    told = [{"name": name, **_about(read_entry(name, SHIPPED))} for name in entry_names(SHIPPED)]
    print_json({"entries": told})
    return 0


def _about(entry: "Entry") -> dict[str, str]:
    return {"place": entry.place, "how": entry.how, "title": entry.title}
