"""The cells of a sweep: which there are, where each one's folder is, and which are done already."""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from omegaconf import OmegaConf

from experiments.compose import Root, expand_grid, read_grid
from experiments.progress import stages
from experiments.rows import commit, read_rows
from experiments.run_directory import CONFIG, ROWS, RunDirectory, open_run_directory
from solvers.ir import InvalidInput, Row
from solvers.ir.codec import read_text

DONE = "done"
"""The file in a cell's folder that says that its rows are all there."""


class AnySettings(Protocol):
    """What a sweep asks of any experiment's settings."""

    name: str
    run_dir: str | None


class AnyComposed(Protocol):
    """Settings, and the same as YAML text."""

    @property
    def settings(self) -> AnySettings:
        """The settings."""
        ...

    @property
    def yaml(self) -> str:
        """The same as text."""
        ...


C = TypeVar("C", bound=AnyComposed)


@dataclass(frozen=True)
class Cell(Generic[C]):
    """One experiment of the grid: its overrides, its settings, the swept values, and its folder."""

    overrides: tuple[str, ...]
    composed: C
    values: Mapping[str, Any]
    folder: RunDirectory

    def known_rows(self) -> list[Row] | None:
        """The rows of an earlier run with the same settings; None where there is none that ended."""
        done = self.folder.path / DONE
        if not done.exists() or read_text(self.folder.path / CONFIG) != self.composed.yaml:
            return None
        return read_rows(self.folder.path / ROWS)

    def with_values(self, row: Row, axes: Sequence[str]) -> Row:
        """The row, with the swept values among what was asked."""
        return msgspec.structs.replace(row, asked={**row.asked, **{axis: self.values.get(axis) for axis in axes}})


@dataclass(frozen=True)
class Grid(Generic[C]):
    """A sweep: its name, its folder, its cells in the order of the axes, and the settings that differ between them."""

    name: str
    directory: RunDirectory
    cells: tuple[Cell[C], ...]

    @property
    def axes(self) -> list[str]:
        """The settings whose values differ from cell to cell."""
        keys = list(dict.fromkeys(key for cell in self.cells for key in cell.values))
        return [key for key in keys if len({str(cell.values.get(key)) for cell in self.cells}) > 1]


def open_grid(overrides: Sequence[str], read: Callable[[Sequence[str]], C], root: Root) -> Grid[C]:
    """All cells that the overrides and the experiment's file ask for, read by `read`; makes the sweep's folder."""
    found = [(words, read(words)) for words in expand_grid(overrides, read_grid(overrides, root))]
    name, directory = _shared([composed.settings for _, composed in found])
    common = set.intersection(*(set(words) for words, _ in found))
    cells = (_cell(words, one, directory.path / "cells" / _folder(words, common)) for words, one in found)
    return Grid(name, directory, tuple(cells))


def run_cells(
    cells: Sequence[Cell[C]], axes: Sequence[str], directory: RunDirectory, rows_of: Callable[[Cell[C]], list[Row]]
) -> list[Row]:
    """The rows of all cells, one cell after the other; the sweep's file has those of each before the next begins."""
    rows: list[Row] = []
    with stages(len(cells)) as shown:
        for cell in cells:
            with shown.stage(f"{cell.folder.path.name} ({len(rows)} rows so far)"):
                rows += [cell.with_values(row, axes) for row in rows_of(cell)]
            directory.rows(rows)
    return rows


def error_row(name: str, reason: str) -> Row:
    """What a cell is where its input is at fault."""
    return Row(
        experiment=name,
        asked={"policy": "all"},
        outcome="error",
        figures={},
        provenance="nothing was simulated",
        commit=commit(),
        seed=0,
        reason=reason,
    )


def _shared(settings: Sequence[AnySettings]) -> tuple[str, RunDirectory]:
    """The sweep's name and folder; raises `InvalidInput` where the cells do not agree on them."""
    named = {(one.name, one.run_dir) for one in settings}
    if len(named) > 1:
        raise InvalidInput(f"name and run_dir hold {len(named)} values, but a sweep has one folder: give one of each")
    ((name, run_dir),) = named
    return name, open_run_directory(name, run_dir)


def _folder(overrides: Sequence[str], common: Collection[str]) -> str:
    """A name that people can read, of what is not common to all cells, and a hash that keeps two cells apart."""
    shown = ",".join(word for word in overrides if word not in common)
    digest = hashlib.sha256("\n".join(overrides).encode()).hexdigest()[:8]
    return f"{re.sub('[^A-Za-z0-9.=,_-]+', '_', shown)[:100] or 'all'}-{digest}"


def _cell(overrides: Sequence[str], composed: C, folder: Path) -> Cell[C]:
    values = {}
    config = OmegaConf.create(composed.yaml)
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        found = OmegaConf.select(config, key)
        values[key] = found if isinstance(found, bool | int | float | str) else value
    return Cell(tuple(overrides), composed, values, RunDirectory(folder))
