"""Documents that are shipped in a folder of `conf/`, by name, or anyone's by path."""

from pathlib import Path

from solvers.ir.codec import DocumentT, read_document
from solvers.ir.names import unknown

CONF = Path(__file__).resolve().parent.parent / "conf"


def shipped_names(folder: str) -> list[str]:
    """The names of the documents that are shipped there."""
    return sorted(path.stem for path in (CONF / folder).glob("*.json"))


def read_shipped(name_or_path: str, folder: str, what: str, kind: type[DocumentT]) -> DocumentT:
    """The document of that name in the folder, or of the file at that path; raises `InvalidInput`.

    What looks like a path (a separator, `.json`) or exists as a file is one; anything else is a name.
    """
    path = Path(name_or_path)
    if name_or_path.endswith(".json") or len(path.parts) > 1 or path.is_file():
        return read_document(path, kind)
    if name_or_path not in shipped_names(folder):
        raise unknown(what, name_or_path, shipped_names(folder))
    return read_document(CONF / folder / f"{name_or_path}.json", kind)
