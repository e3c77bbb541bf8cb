"""Whether a folder takes what a training is about to write there, before any process is started."""

from contextlib import suppress
from pathlib import Path

from solvers.ir.errors import InvalidInput

_NAME, _CONTENT = ".room", b"a place to write to"


def require_room(folder: Path, what: str, option: str) -> None:
    """Makes the folder, and writes a file in it, which goes again; raises `InvalidInput` where the system refuses.

    Folders that were made for nothing go as well.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]  # innermost first
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / _NAME).write_bytes(_CONTENT)
        finally:
            (folder / _NAME).unlink(missing_ok=True)
    except OSError as error:
        with suppress(OSError):
            for one in made:
                one.rmdir()
        raise InvalidInput(
            f"{what} cannot be written to {folder} ({error.strerror}): name another {option}, or make room there"
        ) from error
