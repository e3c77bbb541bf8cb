"""Hardware files by path, or by their name in `conf/hardware`."""

from experiments.shipped import CONF, read_shipped, shipped_names
from solvers.ir.hardware import Hardware

FOLDER = "hardware"
SHIPPED = CONF / FOLDER


def hardware_names() -> list[str]:
    """The names of the hardware files that are shipped."""
    return shipped_names(FOLDER)


def read_hardware(name_or_path: str) -> Hardware:
    """The hardware of that name in `conf/hardware`, or of the file at that path; raises `InvalidInput`."""
    return read_shipped(name_or_path, FOLDER, "hardware", Hardware)
