"""`bayplan report`: the page of a run, made again from what its folder holds."""

import os
from pathlib import Path

import click

from experiments.commands.show import print_figures
from experiments.commands.streams import destination, is_stream
from solvers.ir.codec import write_text
from solvers.ir.errors import InvalidInput

HELP = """Make the page of RUN_DIR: one HTML file, with tables and pictures in it, that needs no network and no script.

RUN_DIR is a folder that `bayplan compare` or `bayplan train` wrote, a sweep's or one cell's too. Every run makes its
page at its end; this makes it again from what the folder holds now: of one that was interrupted too, or that another
version wrote. Nothing else in the folder is changed, and every plan in it is judged again. The page is
RUN_DIR/report.html, or --out FILE, from where its links lead; --out - prints it, without links, and nothing else."""


@click.command("report", help=HELP)
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.html", help="Where to write the page.")
def command(run_dir: Path, out: Path | None) -> int:
    """See HELP."""
    from experiments.reporting.folder import PAGE
    from experiments.reporting.page import page_of

    if out is not None and not is_stream(out):
        _require_no_file_of(run_dir, out)
    text = page_of(run_dir, out)
    if out is not None and is_stream(out):
        click.echo(text, nl=False)
        return 0
    place = run_dir / PAGE if out is None else destination(out, "--out")
    write_text(place, text)
    print_figures(str(run_dir), [("size", f"{len(text.encode('utf-8'))} bytes"), ("written to", str(place))])
    return 0


def _require_no_file_of(run_dir: Path, out: Path) -> None:
    """Refuse to write over what a run left behind: in its folder a page's name ends in .html."""
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(run_dir)) and out.suffix != ".html":
        raise InvalidInput(f"--out {out} is in the run's folder, and no page: give a name that ends in .html")
