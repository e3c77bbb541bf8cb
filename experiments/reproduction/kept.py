"""Kept results (`experiments/results/tables`): what takes long is taken from there, unless it is asked for by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from experiments.reproduction.cells import Cell, cell_hash
from experiments.reproduction.judge import Judged
from experiments.rows import read_rows
from solvers.ir import InvalidInput, Row
from solvers.ir.fields import Record

LONG_S = 60.0
"""Seconds of computing from which on an entry counts as long."""


class Kept(Record, frozen=True, kw_only=True):
    """That an outcome has cells which were kept: how many, from which commits, and whether these had this content."""

    cells: int
    of: int
    commits: tuple[str, ...]
    seconds: float
    same: bool

    def sentence(self) -> str:
        """In words."""
        code = "the same code and inputs" if self.same else "other code or inputs than these"
        commits = ", ".join(self.commits) or "an unknown commit"
        return f"{self.cells} of {self.of} cells kept from {commits} ({self.seconds:,.0f} s of computing), {code}"


@dataclass(frozen=True)
class KeptCells:
    """The cells of one entry's kept rows, by the hashes of their keys."""

    cells: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def long(self) -> bool:
        """Whether computing them again would take long."""
        return sum(cell.seconds for cell in self.cells.values()) > LONG_S

    def used(self, done: list[Cell], content: str) -> Kept | None:
        """What was taken; None where nothing was."""
        taken = [cell for cell in done if cell.kept]
        if not taken:
            return None
        commits = tuple(dict.fromkeys(cell.commit for cell in taken if cell.commit is not None))
        seconds = round(sum(cell.seconds for cell in taken), 1)
        same = all(cell.content == content for cell in taken)
        return Kept(cells=len(taken), of=len(done), commits=commits, seconds=seconds, same=same)


def kept_cells(folder: Path, system: str, name: str, seed: int, parameters: str) -> KeptCells:
    """The kept cells of an entry, made with that seed and parameters of that hash.

    None where nothing is kept, or what is kept is spoilt or was made with other parameters: then all is computed.
    """
    path = folder / system / f"{name}.jsonl"
    try:
        rows = read_rows(path) if path.is_file() else []
        mine = [row for row in rows if row.seed == seed and row.asked.get("parameters") == parameters]
        cells = [row for row in mine if "cell" in row.asked and row.outcome == "ok"]
        return KeptCells({cell_hash(row.asked["cell"]): _cell(row) for row in cells})
    except (InvalidInput, KeyError, TypeError):
        return KeptCells()  # a spoilt file is no answer: compute it again


def judged_of(rows: list[Row]) -> tuple[Judged, ...]:
    """The verdicts that rows tell of."""
    return tuple(msgspec.convert(_raw(row), Judged) for row in rows if "quantity" in row.asked)


def kept_of(rows: list[Row]) -> Kept | None:
    """What rows say of kept cells behind them."""
    told = [row.asked["kept"] for row in rows if "kept" in row.asked]
    return msgspec.convert(told[0], Kept) if told else None


def _raw(row: Row) -> dict[str, Any]:
    return {"name": row.asked["quantity"], "place": row.asked["place"], "reason": row.reason, **row.figures}


def _cell(row: Row) -> Cell:
    key, figures = row.asked["cell"], row.figures
    content = row.asked.get("content")
    return Cell(key, figures["value"], None, figures["seconds"], row.commit, stored=True, kept=True, content=content)
