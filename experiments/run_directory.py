"""The folder that a run leaves behind: every file whole or absent."""

import contextlib
import datetime
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from experiments.rows import rows_to_text
from solvers.ir import InvalidInput, Row
from solvers.ir.codec import json_text

ROWS = "rows.jsonl"
CONFIG = "config.yaml"
SWEEP = "sweep.json"
"""What a sweep's folder says of its cells."""
HYDRA = ".hydra"
"""The folder in which Hydra keeps what a run was asked."""

FOLDER_ONLY = ("run_dir", "plots", "workers", "force")
"""Settings that change no number."""


class AnySettings(Protocol):
    """What a run's folder is opened by."""

    name: str
    run_dir: str | None
    force: bool


@dataclass(frozen=True)
class RunDirectory:
    """A folder that exists and can be written to; `made`: those of it and its parents that were not there before."""

    path: Path
    made: tuple[Path, ...] = ()

    def absolute(self) -> "RunDirectory":
        """The same, wherever the process goes."""
        return RunDirectory(self.path.absolute(), tuple(one.absolute() for one in self.made))

    def json(self, name: str, raw: Any) -> Path:
        """Write a JSON file; folders in the name are made."""
        return self.text(name, json_text(raw) + "\n")

    def text(self, name: str, text: str) -> Path:
        """Write a text file; folders in the name are made."""
        try:
            content = text.encode("utf-8")
        except UnicodeEncodeError as error:  # half a surrogate pair, as of a path that is no UTF-8
            raise InvalidInput(f"cannot write {self.path / name} ({error}): give names in UTF-8") from error
        return self.binary(name, content)

    def binary(self, name: str, content: bytes) -> Path:
        """Write a file whole or not at all, its content on disk before it takes its name; its folders are made."""
        place = self.path / name
        _make(place.parent)
        temporary = place.parent / f".{place.name}.{secrets.token_hex(4)}"
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(place)
        except BaseException as error:  # Ctrl-C, too
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            raise InvalidInput(f"cannot write {place} ({error.strerror}): choose a writable place") from error
        return place

    def durable(self, name: str, text: str) -> Path:
        """Write a text file that survives a power cut: its name is on disk too."""
        place = self.text(name, text)
        _flush_folder(place.parent)
        return place

    def flush(self) -> None:
        """Have the names of all files below on disk, whose contents are there since they were written."""
        for folder, _, _ in os.walk(self.path):
            _flush_folder(Path(folder))

    def rows(self, rows: Sequence[Row]) -> Path:
        """Write all rows; called after each new one, so that nothing computed is lost."""
        return self.durable(ROWS, rows_to_text(rows))

    def holds_anything(self) -> bool:
        """Whether there is more than what Hydra wrote of the question."""
        return self.path.is_dir() and any(entry.name != HYDRA for entry in self.path.iterdir())

    def remove_if_empty(self) -> None:
        """Bad input that showed late leaves no folder behind; one with anything in it stays, and one that was there."""
        if self.holds_anything() or not self.made:
            return
        shutil.rmtree(self.path / HYDRA, ignore_errors=True)
        with contextlib.suppress(OSError):
            for one in self.made:  # innermost first
                one.rmdir()


def open_run_directory(experiment: str, run_dir: str | None) -> RunDirectory:
    """The folder asked for, or a new `runs/EXPERIMENT/DATE-TIME`; raises `InvalidInput` where it is read-only."""
    path = Path(run_dir) if run_dir is not None else _fresh(Path("runs") / experiment)
    made = tuple(one for one in (path, *path.parents) if not one.exists())
    _make(path)
    if not os.access(path, os.W_OK | os.X_OK):
        raise InvalidInput(f"run_dir {path} cannot be written to: choose a writable folder")
    return RunDirectory(path, made)


def open_run(settings: AnySettings, text: str) -> RunDirectory:
    """The folder that the settings ask for; one with a run of other settings is kept unless `force` is set."""
    if settings.run_dir is not None and not settings.force:
        require_same(Path(settings.run_dir), text)
    return open_run_directory(settings.name, settings.run_dir)


def require_same(path: Path, text: str) -> None:
    """Raise `InvalidInput` where the folder holds a sweep, or a run of other settings."""
    remedy = "choose another folder, or overwrite it by force=true"
    if (path / SWEEP).exists():
        raise InvalidInput(f"run_dir {path} holds a sweep: {remedy}")
    known = path / CONFIG
    if known.is_file() and not same_settings(known.read_text(encoding="utf-8", errors="replace"), text):
        raise InvalidInput(f"run_dir {path} holds a run with other settings: {remedy}")


def same_settings(one: str, other: str) -> bool:
    """Whether two settings as YAML text differ in nothing that changes a number."""
    return one == other or _numbers(one) == _numbers(other)


def _numbers(text: str) -> dict[str, Any] | str:
    try:
        settings = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if not isinstance(settings, dict):
        return text
    return {name: value for name, value in settings.items() if name not in FOLDER_ONLY}


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
