"""The folder that a run leaves behind: every file whole or absent."""

import contextlib
import datetime
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.printable import printable
from experiments.rows import rows_to_text
from solvers.ir import InvalidInput, Row
from solvers.ir.codec import write_json, write_text

ROWS = "rows.jsonl"
CONFIG = "config.yaml"


@dataclass(frozen=True)
class RunDirectory:
    """A folder that exists and can be written to; `made`: those of it and its parents that were not there before."""

    path: Path
    made: tuple[Path, ...] = ()

    def json(self, name: str, raw: Any) -> Path:
        """Write a JSON file; folders in the name are made."""
        place = self._place(name)
        write_json(place, raw)
        return place

    def text(self, name: str, text: str) -> Path:
        """Write a text file; folders in the name are made."""
        place = self._place(name)
        write_text(place, text)
        return place

    def binary(self, name: str, content: bytes) -> Path:
        """Write a binary file; folders in the name are made."""
        place = self._place(name)
        temporary = place.parent / f".{place.name}.{os.getpid()}"
        try:
            temporary.write_bytes(content)
            temporary.replace(place)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise InvalidInput(f"cannot write {place} ({error.strerror}): choose a writable place") from error
        return place

    def rows(self, rows: Sequence[Row]) -> Path:
        """Write all rows; called after each new one, so that nothing computed is lost."""
        return self.text(ROWS, rows_to_text(rows))

    def remove_if_empty(self) -> None:
        """Bad input that showed late leaves no folder behind; one with anything in it stays, and one that was there."""
        with contextlib.suppress(OSError):
            for one in self.made:  # innermost first
                one.rmdir()

    def _place(self, name: str) -> Path:
        place = self.path / name
        _make(place.parent)
        return place


def open_run_directory(experiment: str, run_dir: str | None) -> RunDirectory:
    """The folder asked for, or a new `runs/EXPERIMENT/DATE-TIME`; raises `InvalidInput` where it is read-only."""
    path = Path(run_dir) if run_dir is not None else _fresh(Path("runs") / experiment)
    made = tuple(one for one in (path, *path.parents) if not one.exists())
    _make(path)
    if not os.access(path, os.W_OK | os.X_OK):
        raise InvalidInput(f"run_dir {path} cannot be written to: choose a writable folder")
    return RunDirectory(path, made)


def interrupted(directory: RunDirectory) -> int:
    """What Ctrl-C leaves behind, in one line of stderr; the exit code."""
    kept = any(directory.path.iterdir())
    place = f": what was done so far is in {printable(str(directory.path))}" if kept else ""
    print(f"bayplan: interrupted{place}", file=sys.stderr)
    return 130


def _fresh(parent: Path) -> Path:
    """Two runs in one second get folders of their own."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [stamp, *(f"{stamp}-{number}" for number in range(2, 1000))]
    return next(parent / name for name in names if not (parent / name).exists())


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot make the folder {path} ({error.strerror}): choose a writable place") from error
