"""`bayplan table`: the papers' tables and figures beside ours."""

import sys
from pathlib import Path

import click

from experiments.commands.interrupts import Interrupts

HELP = """Compute tables and figures of the papers, and judge ours against the papers' values.

NAME is an entry of conf/table, a system (all its entries), or `all`; without a name the entries are listed. What was
computed before is taken from runs/table, unless the code, a parameter or a file behind it has changed; Ctrl-C loses
nothing that was computed. Exit code 0 whatever the verdicts are."""


@click.command("table", help=HELP)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--fresh", is_flag=True, help="Compute everything again.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="The seed of what is random.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write pages, rows and a summary there.")
def command(names: tuple[str, ...], fresh: bool, seed: int, out: Path | None) -> int:
    """See HELP."""
    from experiments.reproduction.entry import SHIPPED, read_entry
    from experiments.reproduction.run import Options
    from experiments.reproduction.session import chosen, list_entries, run_entries

    if not names:
        return list_entries(SHIPPED)
    wanted = chosen(names, SHIPPED)
    entries = {name: read_entry(name, SHIPPED) for name in wanted}
    interrupts = Interrupts(patient=False)
    options = Options(SHIPPED, seed=seed, fresh=fresh, interrupted=lambda: interrupts.asked_by is not None)
    try:
        with interrupts:
            return run_entries(entries, options, out)
    except KeyboardInterrupt:
        print("bayplan: interrupted: what was computed is kept, the same command goes on from there", file=sys.stderr)
        return 130
