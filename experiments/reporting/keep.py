"""Each run's page, written at its end; a fault of the page never takes the run's answer away."""

import os
import sys

from experiments.commands.interrupts import INTERRUPTED
from experiments.machine import machine
from experiments.printable import printable
from experiments.reporting.folder import MACHINE, PAGE
from experiments.run_directory import CONFIG, ROWS, SWEEP, RunDirectory

TRACEBACK = "BAYPLAN_TRACEBACK"


def keep_page(directory: RunDirectory) -> None:
    """Write down the machine and make the page of a run's folder; where that fails, say so on stderr, and no more."""
    from experiments.reporting.page import page_of  # jinja2 and the judges are needed here only

    try:
        directory.json(MACHINE, machine())
        directory.text(PAGE, page_of(directory.path))
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        told = printable(" ".join(f"{type(error).__name__}: {error}".split()))
        place = printable(str(directory.path))
        print(f"bayplan: the page of {place} could not be made ({told}); all else is there", file=sys.stderr)


def interrupted(directory: RunDirectory, by: str = "", so_far: str = "") -> int:
    """What Ctrl-C leaves behind, with a page of it where it is enough for one; a line of stderr, and the exit code."""
    kept = directory.holds_anything()
    if any((directory.path / name).is_file() for name in (CONFIG, ROWS, SWEEP)):
        keep_page(directory)
    place = f": what was done so far is in {printable(str(directory.path))}{so_far}" if kept else ""
    print(f"bayplan: interrupted{by}{place}", file=sys.stderr)
    return INTERRUPTED
