"""Where results go: judged before the work starts, so that nothing computed is lost."""

import os
import stat
import tempfile
from pathlib import Path

from solvers.ir.errors import InvalidInput


def writable(path: Path, flag: str, inputs: tuple[Path, ...] = ()) -> Path:
    """The place itself (links followed) if a file can be written there; raises `InvalidInput` where it cannot.

    Read-only marks count for root too. Nothing that exists is changed, and none of `inputs` may be written over.
    """
    place = Path(os.path.realpath(path))
    try:
        _require_file(place, path, flag)
        _require_folder(place.parent, path, flag)
        for source in inputs:
            if source.exists() and place.exists() and place.samefile(source):
                raise InvalidInput(f"{flag} {path} would write over the input {source}: choose another place")
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}."):  # as the codec will write it
            pass
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{flag} {path} cannot be written ({reason}): choose a writable place") from error
    return place


def _require_file(place: Path, path: Path, flag: str) -> None:
    if not place.exists():
        return
    mode = place.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InvalidInput(f"{flag} {path} is a folder: give the name of a file")
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{flag} {path} is no regular file: give the name of a file")
    if not mode & 0o222:
        raise InvalidInput(f"{flag} {path} is read-only: choose another place or make it writable")


def _require_folder(folder: Path, path: Path, flag: str) -> None:
    if not folder.is_dir():
        raise InvalidInput(f"{flag} {path} lies in {folder}, which is no folder: create it first")
    if not folder.stat().st_mode & 0o222:
        raise InvalidInput(f"{flag} {path} lies in the read-only folder {folder}: choose a writable one")
