"""What a run's folder holds, read for its page: nothing in it is trusted, and nothing in it is changed."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from experiments.grid import DONE
from experiments.kinds import KINDS, TRAINING
from experiments.rows import read_rows
from experiments.run_directory import CONFIG, ROWS, SWEEP
from experiments.sweeping.record import recorded
from solvers.ir import InvalidInput, OpGraph, Report, Row
from solvers.ir.codec import parse_json, read_document, read_text
from solvers.ir.sentences import one_line

PAGE, MACHINE = "report.html", "machine.json"
"""The page itself, and what its run wrote down of the machine."""
MOST_BYTES, MOST_OF_ALL = 24 << 20, 64 << 20
"""Reports beyond these sizes, each and together, are named and not drawn: the page is made in a second."""
MOST_SETTINGS = 1 << 20
"""Letters of settings that are read."""
MOST_CELLS = 10_000
"""Cells of a sweep that are looked at."""
MOST_FILES = 400
"""Files that a page lists; it counts the others."""
ROLES = {"simulated": "planned", "predicted": "planned", "executed": "executed"}
Role = Literal["planned", "executed"]


@dataclass(frozen=True)
class Recorded:
    """A step that the run wrote down: whose it is, and whether it is the plan's or what happened."""

    name: str
    role: Role
    report: Report


@dataclass(frozen=True)
class Cells:
    """A sweep: its cells, how many of them have rows, and the swept settings."""

    folders: tuple[str, ...]
    done: int
    arguments: tuple[str, ...]
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A run's folder; `remarks` are sentences on what could not be read or is not there."""

    path: Path
    kind: str
    rows: Sequence[Row]
    settings: str
    cells: Cells | None = None
    reports: Sequence[Recorded] = ()
    graph: OpGraph | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    more_files: int = 0
    remarks: Sequence[str] = ()

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The settings as plain values; none where they cannot be read."""
        try:
            raw = yaml.safe_load(self.settings) if len(self.settings) < MOST_SETTINGS else None
        except (yaml.YAMLError, RecursionError):
            return {}
        return raw if isinstance(raw, dict) else {}


def read_folder(path: Path) -> Found:
    """What a folder holds; raises `InvalidInput` for one that is no run's, or whose rows cannot be read."""
    if not path.is_dir():
        raise InvalidInput(f"{path} is no folder: give the folder that a run was written to, as in runs/demo/…")
    record = recorded(path)
    if not any((path / name).is_file() for name in (ROWS, CONFIG, SWEEP)):
        raise InvalidInput(
            f"{path} holds none of {CONFIG}, {ROWS} and {SWEEP}, so no run of bayplan compare or train: give the "
            "folder that one was written to"
        )
    remarks: list[str] = []
    cells = None if record is None else _cells(path, record)
    rows = _rows(path, cells)
    settings = _settings(path, cells, remarks)
    files = _files(path, cells)
    return Found(
        path=path,
        kind=_kind(settings, record),
        rows=rows,
        settings=settings,
        cells=cells,
        reports=_reports(path, remarks),
        graph=_graph(path, remarks),
        machine=_machine(path),
        files=files[:MOST_FILES],
        more_files=max(0, len(files) - MOST_FILES),
        remarks=[*_unfinished(rows, cells), *remarks],
    )


def _kind(settings: str, record: Mapping[str, Any] | None) -> str:
    said = re.search(r"^kind: *(\w+) *$", settings, re.MULTILINE)
    kind = str(record.get("kind")) if record is not None else said[1] if said else TRAINING
    return kind if kind in KINDS else TRAINING


def _settings(path: Path, cells: Cells | None, remarks: list[str]) -> str:
    """The settings as they were written; of a sweep those of its first cell that has any."""
    places = [path, *(path / name for name in (cells.folders if cells is not None else ()))]
    place = next((one / CONFIG for one in places if (one / CONFIG).is_file()), None)
    if place is None:
        return ""
    try:
        return read_text(place)
    except InvalidInput as error:
        remarks.append(one_line(error))
        return ""


def _cells(path: Path, record: Mapping[str, Any]) -> Cells:
    names = record.get("cells")
    folders = [str(name) for name in names[:MOST_CELLS]] if isinstance(names, list) else []
    inside = tuple(name for name in folders if _within(path, name))
    texts = {key: tuple(map(str, value)) if isinstance(value := record.get(key), list) else () for key in ("arguments",
        "axes")}  # fmt: skip
    done = sum(_marked(path / name) is not None for name in inside)
    return Cells(inside, done, texts["arguments"], texts["axes"])


def _within(path: Path, name: str) -> bool:
    """Whether a recorded cell lies in the sweep's folder: a record could name any place."""
    return (path / name).resolve().is_relative_to(path.resolve())


def _marked(cell: Path) -> int | None:
    """How many rows a cell's mark speaks of; None where it has none that can be read."""
    try:
        return int(json.loads((cell / DONE).read_text(encoding="utf-8"))["rows"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _rows(path: Path, cells: Cells | None) -> list[Row]:
    """The folder's rows; of a sweep that was killed those of its cells, where these have more."""
    rows = read_rows(path / ROWS) if (path / ROWS).is_file() else []
    if cells is None:
        return rows
    marks = {name: _marked(path / name) for name in cells.folders}
    if len(rows) >= sum(count or 0 for count in marks.values()):
        return rows
    return [row for name in cells.folders if marks[name] is not None for row in _cell_rows(path / name, cells.axes)]


def _cell_rows(cell: Path, axes: Sequence[str]) -> Iterator[Row]:
    """One cell's rows with the swept values among what was asked, as the sweep writes them."""
    try:
        words = yaml.safe_load(read_text(cell / ".hydra" / "overrides.yaml")) or []
        values = {key: yaml.safe_load(value) for key, _, value in (str(word).partition("=") for word in words)}
    except (InvalidInput, yaml.YAMLError, TypeError, RecursionError):
        values = {}
    for row in read_rows(cell / ROWS):
        yield msgspec.structs.replace(row, asked={**row.asked, **{axis: values.get(axis) for axis in axes}})


def _unfinished(rows: Sequence[Row], cells: Cells | None) -> list[str]:
    if cells is not None and cells.done < len(cells.folders):
        done = f"{cells.done} of {len(cells.folders)} cells are done"
        return [f"{done}: the command of the sweep goes on where it ended with run_dir= of this folder."]
    return [] if rows else [f"There is no row yet: the run had not come to one when this page was made ({ROWS})."]


def _reports(path: Path, remarks: list[str]) -> list[Recorded]:
    """The steps that were written down, sorted by name; what cannot be read or is too large is a remark."""
    found, total = [], 0
    for place in sorted((path / "reports").glob("*.json")) if (path / "reports").is_dir() else []:
        size = place.stat().st_size if place.is_file() else 0
        total += size
        if size > MOST_BYTES or total > MOST_OF_ALL:
            total -= size
            remarks.append(f"reports/{place.name} is not drawn: it has {size / 2**20:.0f} MiB")
            continue
        name, _, role = place.stem.replace("-executed", ".executed").replace("-predicted", ".predicted").rpartition(".")
        try:
            report = read_document(place, Report)
        except InvalidInput as error:
            remarks.append(f"not drawn: {one_line(error)}")
            continue
        known: Role = "planned" if report.how == "simulated" else "executed"
        found.append(Recorded(name if role in ROLES else place.stem, known, report))
    return found


def _graph(path: Path, remarks: list[str]) -> OpGraph | None:
    place = path / "graph.json"
    if not place.is_file() or place.stat().st_size > MOST_BYTES:
        return None
    try:
        return read_document(place, OpGraph)
    except InvalidInput as error:
        remarks.append(one_line(error))
        return None


def _machine(path: Path) -> Mapping[str, Any]:
    try:
        raw = parse_json(read_text(path / MACHINE), MACHINE)
    except InvalidInput:
        return {}
    return raw if isinstance(raw, dict) else {}


def _files(path: Path, cells: Cells | None) -> list[str]:
    """The files of a folder but the page, what is hidden, and what lies in cells; those on top first.

    Links are not followed.
    """
    apart = {path / name for name in (cells.folders if cells is not None else ())}
    found: list[Path] = []
    for folder, inside, names in os.walk(path):
        inside[:] = [one for one in inside if not one.startswith(".") and Path(folder, one) not in apart]
        places = [Path(folder, name) for name in names if not name.startswith(".") and name != PAGE]
        found += [place.relative_to(path) for place in places if place.is_file() and not place.is_symlink()]
    return [str(one) for one in sorted(found, key=lambda one: (len(one.parts), str(one)))]
