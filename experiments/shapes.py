"""Model shapes by path, or by their name in `conf/model/shapes`."""

from experiments.shipped import CONF, read_shipped, shipped_names
from solvers.workload.shape import ModelShape

FOLDER = "model/shapes"
SHIPPED = CONF / FOLDER


def shape_names() -> list[str]:
    """The names of the shapes that are shipped."""
    return shipped_names(FOLDER)


def read_shape(name_or_path: str) -> ModelShape:
    """The shape of that name in `conf/model/shapes`, or of the file at that path; raises `InvalidInput`."""
    return read_shipped(name_or_path, FOLDER, "shape", ModelShape)
