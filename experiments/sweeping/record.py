"""What a sweep's folder says of its cells, so that another sweep does not take its place unasked."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.grid import AnyComposed, Cell, swept
from experiments.run_directory import CONFIG, HYDRA, SWEEP, RunDirectory, same_settings
from solvers.ir import InvalidInput
from solvers.ir.codec import parse_json, read_text

FORMAT = "bayplan-sweep/1"


def require_same_sweep(path: Path, kind: str, arguments: Sequence[str], cells: Sequence[Cell[Any]] | None) -> None:
    """Raise `InvalidInput` where the folder holds a run, or a sweep with cells that this one has not.

    More cells than last time are no other sweep. `cells` is None where the sweeper chooses them on its way: then the
    arguments must be the same.
    """
    remedy = "choose another folder, or overwrite it by force=true"
    record = recorded(path)
    if record is None:
        if (path / CONFIG).exists():
            raise InvalidInput(f"run_dir {path} holds a single run: {remedy}")
        return
    if record.get("kind") != kind:
        raise InvalidInput(f"run_dir {path} holds a sweep of another kind ({record.get('kind')}): {remedy}")
    if cells is None:
        if record.get("arguments") != list(arguments):
            raise InvalidInput(f"run_dir {path} holds a sweep with other arguments: {remedy}")
        return
    foreign = foreign_cells(path, record, cells)
    if foreign:
        raise InvalidInput(
            f"run_dir {path} holds a sweep of which this one has not all cells ({len(foreign)} missing or with other "
            f"settings, as {foreign[0]}): {remedy}"
        )


def foreign_cells(path: Path, record: Mapping[str, Any], cells: Sequence[Cell[AnyComposed]]) -> list[str]:
    """The recorded cells, by their folders, that are none of these, or have other settings."""
    ours = {str(cell.folder.path.relative_to(path)): cell.composed.yaml for cell in cells}
    known = [str(name) for name in record.get("cells", ())]
    return [name for name in known if name not in ours or not _same(path / name / CONFIG, ours[name])]


def keep_record(directory: RunDirectory, kind: str, arguments: Sequence[str], cells: Sequence[Cell[Any]]) -> None:
    """Write down which cells the sweep has, and which settings differ between them."""
    names = [str(cell.folder.path.relative_to(directory.path)) for cell in cells]
    raw = {"format": FORMAT, "kind": kind, "arguments": list(arguments), "cells": names, "axes": swept(cells)}
    directory.json(SWEEP, raw)


def remove_foreign(path: Path, cells: Sequence[Cell[Any]]) -> None:
    """What `force=true` overwrites: the folders of cells that this sweep has not, and nothing beside them."""
    record = recorded(path)
    for name in [] if record is None else foreign_cells(path, record, cells):
        if "\0" in name:
            continue
        place = (path / name).resolve()
        inside = place.is_relative_to(path.resolve()) and place != path.resolve()
        if inside and ((place / CONFIG).is_file() or (place / HYDRA).is_dir()):  # a record could name any folder
            shutil.rmtree(place, ignore_errors=True)


def recorded(path: Path) -> dict[str, Any] | None:
    """The record in a folder; None where there is none that can be read: then each cell speaks for itself."""
    try:
        raw = parse_json(read_text(path / SWEEP), SWEEP)
    except InvalidInput:
        return None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        return None
    return raw if isinstance(raw.get("cells"), list) else None


def _same(config: Path, yaml: str) -> bool:
    """A cell that was recorded and never begun has no settings yet, and is no other one."""
    return not config.is_file() or same_settings(config.read_text(encoding="utf-8", errors="replace"), yaml)
