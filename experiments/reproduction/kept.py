"""Kept results (`experiments/results/tables`): what takes long is taken from there, unless it is asked for by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from experiments.reproduction.cells import Cell, cell_hash
from experiments.reproduction.judge import Judged
from experiments.rows import read_rows
from solvers.ir import Row
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

    content: str | None = None
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
        return Kept(cells=len(taken), of=len(done), commits=commits, seconds=seconds, same=self.content == content)


def kept_cells(folder: Path, system: str, name: str, seed: int) -> KeptCells:
    """The kept cells of an entry, made with that seed; none where nothing is kept.

    Raises `InvalidInput` where the file is spoilt.
    """
    path = folder / system / f"{name}.jsonl"
    rows = [row for row in read_rows(path) if row.seed == seed] if path.is_file() else []
    content = {row.asked.get("content") for row in rows}
    cells = {cell_hash(row.asked["cell"]): _cell(row) for row in rows if "cell" in row.asked and row.outcome == "ok"}
    return KeptCells(str(content.pop()) if len(content) == 1 and None not in content else None, cells)


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
    return Cell(key, figures["value"], None, figures["seconds"], row.commit, stored=True, kept=True)
