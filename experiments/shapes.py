"""Model shapes by path, or by their name in `conf/model/shapes`."""

from pathlib import Path

from solvers.ir.codec import read_document
from solvers.ir.names import unknown
from solvers.workload.shape import ModelShape

SHIPPED = Path(__file__).resolve().parent.parent / "conf" / "model" / "shapes"


def shape_names() -> list[str]:
    """The names of the shapes that are shipped."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def read_shape(name_or_path: str) -> ModelShape:
    """The shape of that name in `conf/model/shapes`, or of the file at that path; raises `InvalidInput`.

    What looks like a path (a separator, `.json`) or exists as a file is one; anything else is a name.
    """
    path = Path(name_or_path)
    if name_or_path.endswith(".json") or len(path.parts) > 1 or path.is_file():
        return read_document(path, ModelShape)
    if name_or_path not in shape_names():
        raise unknown("shape", name_or_path, shape_names())
    return read_document(SHIPPED / f"{name_or_path}.json", ModelShape)
