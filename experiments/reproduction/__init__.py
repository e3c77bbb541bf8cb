"""The papers' tables and figures beside ours: entries of `conf/table`, cached cells, verdicts, pages (README.md)."""

from experiments.reproduction.cells import Cells
from experiments.reproduction.result import OUT_OF_MEMORY, Result, Series, scalar

__all__ = ["OUT_OF_MEMORY", "Cells", "Result", "Series", "scalar"]
