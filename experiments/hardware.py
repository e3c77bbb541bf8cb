"""Hardware files by path, or by their name in `conf/hardware`."""

from pathlib import Path

from solvers.ir.codec import read_document
from solvers.ir.hardware import Hardware
from solvers.ir.names import unknown

SHIPPED = Path(__file__).resolve().parent.parent / "conf" / "hardware"


def hardware_names() -> list[str]:
    """The names of the hardware files that are shipped."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def read_hardware(name_or_path: str) -> Hardware:
    """The hardware of that name in `conf/hardware`, or of the file at that path; raises `InvalidInput`.

    What looks like a path (a separator, `.json`) or exists as a file is one; anything else is a name.
    """
    path = Path(name_or_path)
    if name_or_path.endswith(".json") or len(path.parts) > 1 or path.is_file():
        return read_document(path, Hardware)
    if name_or_path not in hardware_names():
        raise unknown("hardware", name_or_path, hardware_names())
    return read_document(SHIPPED / f"{name_or_path}.json", Hardware)
