"""The cells of a sweep: which there are, where each one's folder is, and what an earlier run left there."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from omegaconf import OmegaConf

from experiments.rows import commit, rows_from_text
from experiments.run_directory import CONFIG, ROWS, RunDirectory, same_settings
from solvers.ir import InvalidInput, Row
from solvers.ir.codec import read_text

DONE = "done"
"""The file in a cell's folder that is written last: how many rows there are, and their hash."""
BEGUN = "it had not ended"


class AnySettings(Protocol):
    """What a sweep asks of any experiment's settings."""

    name: str
    run_dir: str | None
    force: bool


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


class Kept(NamedTuple):
    """What an earlier run left of a cell: its rows if they are whole, else why they are not; both None: it is new."""

    rows: list[Row] | None = None
    flaw: str | None = None
    damaged: bool = False


@dataclass(frozen=True)
class Cell(Generic[C]):
    """One experiment of the grid: its overrides, its settings, the swept values, and its folder."""

    overrides: tuple[str, ...]
    composed: C
    values: Mapping[str, Any]
    folder: RunDirectory

    def kept(self) -> Kept:
        """What an earlier run with the same settings left; rows count only where their mark fits them."""
        path = self.folder.path
        if not (path / DONE).exists():
            return Kept(flaw=BEGUN if (path / CONFIG).exists() else None)
        try:
            mark = json.loads((path / DONE).read_text(encoding="utf-8"))
            expected, count = str(mark["sha256"]), int(mark["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            return Kept(flaw=f"its mark {DONE} cannot be read", damaged=True)
        return _kept_rows(path, self.composed.yaml, expected, count)

    def finish(self, rows: Sequence[Row]) -> None:
        """Write the rows, and then the mark that says that they are all there, as all other files of the cell are."""
        self.folder.rows(rows)
        self.folder.flush()
        text = (self.folder.path / ROWS).read_bytes()
        mark = {"rows": len(rows), "sha256": hashlib.sha256(text).hexdigest()}
        self.folder.durable(DONE, json.dumps(mark) + "\n")

    def begin(self) -> None:
        """Take an earlier run's mark and rows away, and write the settings."""
        for name in (DONE, ROWS):
            (self.folder.path / name).unlink(missing_ok=True)
        self.folder.durable(CONFIG, self.composed.yaml)

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
        return swept(self.cells)


def swept(cells: Sequence[Cell[Any]]) -> list[str]:
    """The settings whose values differ between cells, in the order in which they were given."""
    keys = list(dict.fromkeys(key for cell in cells for key in cell.values))
    return [key for key in keys if len({str(cell.values.get(key)) for cell in cells}) > 1]


def values_of(overrides: Sequence[str], yaml: str) -> dict[str, Any]:
    """The overrides' keys with their values as they were composed."""
    values = {}
    config = OmegaConf.create(yaml)
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        found = OmegaConf.select(config, key)
        values[key] = found if isinstance(found, bool | int | float | str) else value
    return values


def error_row(name: str, reason: str, provenance: str = "nothing was simulated", seed: int = 0) -> Row:
    """What a cell is where its input is at fault."""
    return Row(
        experiment=name,
        asked={"policy": "all"},
        outcome="error",
        figures={},
        provenance=provenance,
        commit=commit(),
        seed=seed,
        reason=reason,
    )


def _kept_rows(path: Path, yaml: str, expected: str, count: int) -> Kept:
    """The rows that a mark speaks of, if they are still those."""
    try:
        if not same_settings(read_text(path / CONFIG), yaml):
            return Kept(flaw="it has other settings")
        text = (path / ROWS).read_bytes()
        if hashlib.sha256(text).hexdigest() == expected:
            return Kept(rows=rows_from_text(text.decode("utf-8"), str(path / ROWS)))
        lines = text.count(b"\n")
    except FileNotFoundError:
        return Kept(flaw=f"its {ROWS} is gone", damaged=True)
    except (OSError, ValueError, InvalidInput):
        return Kept(flaw=f"its {CONFIG} or {ROWS} cannot be read", damaged=True)
    what = "is empty" if not text else f"holds {lines} whole rows of {count}" if lines < count else "was changed"
    return Kept(flaw=f"its {ROWS} {what}", damaged=True)
