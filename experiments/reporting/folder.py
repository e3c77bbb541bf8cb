"""What a run's folder holds, read for its page: nothing in it is trusted, and nothing in it is changed."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from experiments.grid import DONE
from experiments.reporting.inside import Budget, Inside, plain_yaml
from experiments.reporting.provenance import kind_of_folder
from experiments.rows import rows_from_text
from experiments.run_directory import CONFIG, HYDRA, ROWS, SWEEP
from experiments.sweeping.record import recorded
from solvers.ir import InvalidInput, OpGraph, Report, Row
from solvers.ir.codec import parse_json, read_document
from solvers.ir.sentences import one_line

PAGE, MACHINE = "report.html", "machine.json"
"""The page itself, and what its run wrote down of the machine."""
MOST_BYTES, MOST_OF_ALL = 24 << 20, 64 << 20
"""Reports beyond these sizes, each and together, are named and not drawn: the page is made in a second."""
MOST_SETTINGS, MOST_ROWS, MOST_RECORD = 1 << 20, 64 << 20, 4 << 20
"""Bytes of settings, of rows, and of records and marks of sweeps that are read, each in all."""
LONGEST_INTEGER = 4096
"""Bits of a swept value; larger ones cannot be written down."""
MOST_CELLS = 10_000
"""Cells of a sweep that are looked at."""
MOST_FILES = 400
"""Files that a page lists; it counts the others."""
WRITTEN = ("plans", "reports")
"""Folders of what a run writes beside its rows."""
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
    marks: Mapping[str, int]
    arguments: tuple[str, ...]
    axes: tuple[str, ...]

    @property
    def done(self) -> int:
        """How many cells ended."""
        return len(self.marks)


@dataclass(frozen=True)
class Found:
    """A run's folder; `remarks` are sentences on what could not be read or is not there."""

    path: Path
    inside: Inside
    kind: str
    rows: Sequence[Row]
    settings: str
    values: Mapping[str, Any] = field(default_factory=dict)
    cells: Cells | None = None
    reports: Sequence[Recorded] = ()
    graph: OpGraph | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    more_files: int = 0
    remarks: Sequence[str] = ()


def read_folder(path: Path) -> Found:
    """What a folder holds; raises `InvalidInput` for one that is no run's, or whose rows cannot be read."""
    if not path.is_dir():
        raise InvalidInput(f"{path} is no folder: give the folder that a run was written to, as in runs/demo/…")
    if not any((path / name).is_file() for name in (ROWS, CONFIG, SWEEP)):
        raise InvalidInput(
            f"{path} holds none of {CONFIG}, {ROWS} and {SWEEP}, so no run of bayplan compare or train: give the "
            "folder that one was written to"
        )
    inside, asked = Inside(path), Budget(MOST_SETTINGS)
    record = _record(inside)
    cells = None if record is None else _cells(inside, record)
    rows = _rows(inside, cells, asked)
    settings = _settings(inside, cells, asked)
    values = _values(inside, settings)
    files = _files(path, cells)
    return Found(
        path=path,
        inside=inside,
        kind=kind_of_folder(settings, bool(values), record, rows),
        rows=rows,
        settings=settings,
        values=values,
        cells=cells,
        reports=_reports(inside),
        graph=_graph(inside),
        machine=_machine(inside),
        files=files[:MOST_FILES],
        more_files=max(0, len(files) - MOST_FILES),
        remarks=_unfinished(inside, rows, cells),
    )


def _record(inside: Inside) -> Mapping[str, Any] | None:
    place = inside.file(SWEEP)
    if place is None:
        return None
    known = None if place.stat().st_size > MOST_RECORD else recorded(inside.root)
    if known is None:
        inside.remark(
            f"{SWEEP} is no record of a sweep that can be read: cells are not listed; the sweep's command, given this "
            "folder as run_dir, writes it again"
        )
    return known


def _settings(inside: Inside, cells: Cells | None, budget: Budget) -> str:
    """The settings as they were written; of a sweep those of its first cell that has any."""
    for name in (CONFIG, *(f"{name}/{CONFIG}" for name in (cells.folders if cells is not None else ()))):
        try:
            text = inside.text(name, budget)
        except InvalidInput as error:
            inside.remark(one_line(error))
            return ""
        if text is not None:
            return text
    return ""


def _values(inside: Inside, settings: str) -> Mapping[str, Any]:
    """The settings as plain values; none, and a remark, where they cannot be read."""
    try:
        raw = plain_yaml(settings)
    except InvalidInput as error:
        inside.remark(f"What {CONFIG} says is shown, and nothing is taken from it: {one_line(error)}")
        return {}
    return raw if isinstance(raw, dict) else {}


def _cells(inside: Inside, record: Mapping[str, Any]) -> Cells:
    """The cells that lie in the folder, each once; a record could name any place, and the folder itself."""
    names = record.get("cells")
    folders = [str(name) for name in names[:MOST_CELLS]] if isinstance(names, list) else []
    known = (inside.name_of(name) for name in dict.fromkeys(folders))
    own = tuple(dict.fromkeys(name for name in known if name is not None and name != "."))
    texts = {key: tuple(map(str, value)) if isinstance(value := record.get(key), list) else () for key in ("arguments",
        "axes")}  # fmt: skip
    marks = {name: count for name in own if (count := _marked(inside, name)) is not None}
    return Cells(own, marks, texts["arguments"], texts["axes"])


def _marked(inside: Inside, cell: str) -> int | None:
    """How many rows a cell's mark speaks of; None where it has none that can be read."""
    try:
        text = inside.text(f"{cell}/{DONE}", Budget(MOST_RECORD))
        return None if text is None else int(json.loads(text)["rows"])
    except (InvalidInput, OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        inside.remark(f"{cell}/{DONE} cannot be read ({one_line(error)}): the cell counts as not done")
        return None


def _rows(inside: Inside, cells: Cells | None, asked: Budget) -> list[Row]:
    """The folder's rows; of a sweep that was killed those of its cells, where these have more."""
    budget = Budget(MOST_ROWS)
    text = inside.text(ROWS, budget)
    rows = [] if text is None else rows_from_text(text, str(inside.root / ROWS))
    if cells is None or len(rows) >= sum(cells.marks.values()):
        return rows
    return [row for name in cells.marks for row in _cell_rows(inside, name, cells.axes, budget, asked)]


def _cell_rows(inside: Inside, cell: str, axes: Sequence[str], budget: Budget, asked: Budget) -> list[Row]:
    """One cell's rows with the swept values among what was asked, as the sweep writes them."""
    values: dict[str, Any] = {}
    try:
        text = inside.text(f"{cell}/{ROWS}", budget)
        rows = [] if text is None else rows_from_text(text, f"{cell}/{ROWS}")
    except InvalidInput as error:
        inside.remark(one_line(error))
        return []
    try:
        words = plain_yaml(inside.text(f"{cell}/{HYDRA}/overrides.yaml", asked) or "[]")
        pairs = [word.partition("=") for word in words if isinstance(word, str)] if isinstance(words, list) else []
        values = {key: plain_yaml(value) for key, _, value in pairs if key in axes}
    except InvalidInput as error:
        inside.remark(f"what the cell {cell} was asked cannot be read: {one_line(error)}")
    known = {axis: values.get(axis) for axis in axes}
    known = {axis: None if _endless(value) else value for axis, value in known.items()}
    return [msgspec.structs.replace(row, asked={**row.asked, **known}) for row in rows]


def _endless(value: Any) -> bool:
    return isinstance(value, int) and value.bit_length() > LONGEST_INTEGER


def _unfinished(inside: Inside, rows: Sequence[Row], cells: Cells | None) -> list[str]:
    """What speaks against the rows being all that there were."""
    if cells is not None and cells.done < len(cells.folders):
        done = f"{cells.done} of {len(cells.folders)} cells are done"
        return [f"{done}: the command of the sweep goes on where it ended with run_dir= of this folder."]
    if rows:
        return []
    if inside.file(ROWS) is None and cells is None:
        return [f"There is no row yet: the run had not come to one when this page was made ({ROWS})."]
    written = [name for name in WRITTEN if inside.files(name, "*")]
    written += ["cells that are done"] if cells is not None and cells.done else []
    though = f", though {' and '.join(written)} of the run are there" if written else ""
    return [f"{ROWS} holds no row{though}: give the run's command again with force=true for its figures."]


def _reports(inside: Inside) -> list[Recorded]:
    """The steps that were written down, sorted by name; what cannot be read or is too large is a remark."""
    found, total = [], 0
    for place in inside.files("reports", "*.json"):
        if inside.file(f"reports/{place.name}") is None:
            continue
        size = place.stat().st_size
        total += size
        if size > MOST_BYTES or total > MOST_OF_ALL:
            total -= size
            inside.remark(f"reports/{place.name} is not drawn: it has {size / 2**20:.0f} MiB")
            continue
        name, _, role = place.stem.replace("-executed", ".executed").replace("-predicted", ".predicted").rpartition(".")
        try:
            report = read_document(place, Report)
        except InvalidInput as error:
            inside.remark(f"not drawn: {one_line(error)}")
            continue
        known: Role = "planned" if report.how == "simulated" else "executed"
        found.append(Recorded(name if role in ROLES else place.stem, known, report))
    return found


def _graph(inside: Inside) -> OpGraph | None:
    place = inside.file("graph.json")
    if place is None or place.stat().st_size > MOST_BYTES:
        return None
    try:
        return read_document(place, OpGraph)
    except InvalidInput as error:
        inside.remark(one_line(error))
        return None


def _machine(inside: Inside) -> Mapping[str, Any]:
    try:
        raw = parse_json(inside.text(MACHINE, Budget(MOST_SETTINGS)) or "{}", MACHINE)
    except InvalidInput as error:
        inside.remark(one_line(error))
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
