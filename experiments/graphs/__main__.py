"""`python -m experiments.graphs STUDY --out FOLDER`: cells as they come, then the page of all that are there."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from experiments.command_line import run
from experiments.graphs.budgets import TIME_S, WORK, by_work, in_time
from experiments.graphs.cell import Asked
from experiments.graphs.names import by_name
from experiments.graphs.page import gap_page, pairs_page, race_page, shares_page, tiny_page
from experiments.graphs.pairs import pairs
from experiments.graphs.race import GRAPHS, questions, race
from experiments.graphs.shares import shares
from experiments.graphs.store import Store
from experiments.graphs.tiny import COUNT, rows
from solvers.ir.codec import problem_to_raw, write_json
from solvers.ir.errors import BayplanError

FOLDER = click.Path(path_type=Path, file_okay=False)
TRACED_S = 15.0
"""What `opt` has for a measured step."""


def _race(folder: Path, kept: bool) -> str:
    store, lines = Store(folder / "race.jsonl"), []
    for found in race(store, [graph for graph in GRAPHS if not kept or all(map(store.known, questions(graph)))]):
        lines.append(found)
        click.echo(f"{found['graph']}: {found['worse']}")
    return race_page(lines)


def _budgets(folder: Path, kept: bool) -> str:
    parts = {f"{TIME_S:g} s of the clock": in_time(), f"`--work {WORK:g}`": by_work()}
    pages = [
        f"**{limits}.** " + _gaps(folder / "budgets.jsonl", {str(at): one for at, one in asked}, kept, "position")
        for limits, asked in parts.items()
    ]
    return "\n".join(pages)


def _traced(folder: Path, kept: bool) -> str:
    from experiments.graphs.traced import TRACED

    asked = {name: Asked(graph=f"traced:{name}@0.5", solver="opt", time_s=TRACED_S) for name in TRACED}
    return _gaps(folder / "traced.jsonl", asked, kept, "model")


def _gaps(place: Path, asked: dict[str, Asked], kept: bool, label: str) -> str:
    store, found = Store(place), []
    for name, one in asked.items():
        if not kept or store.known(one):
            found.append({"label": name, **store.get(one)})
            click.echo(f"{name}: {found[-1]['overhead_gap']}")
    return gap_page(found, label)


def _tiny(folder: Path, kept: bool) -> str:
    place = folder / "tiny.jsonl"
    known = _lines(place)
    feasible = sum(row["optimum"] is not None for row in known)
    return tiny_page(_grown(place, rows(known[-1]["seed"] + 1 if known else 0, 0 if kept else COUNT - feasible)))


def _pairs(folder: Path, kept: bool) -> str:
    place = folder / "pairs.jsonl"
    known = {(row["solver"], row["instance"]) for row in _lines(place)}
    return pairs_page(_grown(place, () if kept else pairs(known)))


def _shares(folder: Path, kept: bool) -> str:
    place = folder / "shares.jsonl"
    return shares_page(_grown(place, () if kept else shares({row["instance"] for row in _lines(place)})))


def _lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in place.read_text().splitlines()] if place.exists() else []


def _grown(place: Path, more: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that are there, and these, each written as it comes."""
    known = _lines(place)
    with place.open("a") as file:
        for row in more:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
            known.append(row)
    return known


STUDIES: dict[str, Callable[[Path, bool], str]] = {
    "race": _race, "budgets": _budgets, "traced": _traced, "tiny": _tiny, "pairs": _pairs, "shares": _shares,
}  # fmt: skip


@click.group("graphs", help=__doc__)
def graphs() -> None:
    """See the file's docstring."""


@graphs.command("make")
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where to write the problem.")
def make(name: str, out: Path) -> int:
    """Write the graph NAME, as in series-parallel-300-s2@0.4, as a problem file."""
    write_json(out, problem_to_raw(by_name(name)))
    return 0


@graphs.command("show")
@click.argument("study", type=click.Choice(list(STUDIES)))
@click.option("--out", type=FOLDER, required=True, help="The folder of its cells and pages.")
@click.option("--kept", is_flag=True, help="The page of the cells that are there: ask no further graph.")
def show(study: str, out: Path, kept: bool) -> int:
    """Compute the cells of STUDY that are not there yet, and write its page."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        text = STUDIES[study](out, kept)
    except BayplanError as error:
        click.echo(f"{study}: {error}", err=True)
        return 1
    (out / f"{study}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(run(graphs, "graphs", sys.argv[1:]))
