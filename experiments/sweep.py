"""`bayplan compare -m`: a grid of experiments of one kind, each cell on disk before the next one begins."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from experiments.grid import open_grid, run_cells
from experiments.run_directory import interrupted
from experiments.study import Study
from experiments.tables import say, to_markdown, to_terminal, to_text


def run_sweep(study: Study[Any], overrides: Sequence[str]) -> int:
    """Run every cell that is not there yet, write all rows, tables and pictures; the study's exit code."""
    grid = open_grid(overrides, study.read, study.root)
    cells = study.in_order(grid.cells)
    try:
        rows = run_cells(cells, grid.axes, grid.directory, lambda cell: study.cell_rows(cell, cells))
    except KeyboardInterrupt:
        return interrupted(grid.directory)
    tables = study.sweep_tables(rows, grid.axes)
    grid.directory.text("table.txt", to_text(tables))
    grid.directory.text("table.md", to_markdown(tables))
    study.draw_sweep(grid, rows)
    console = Console()
    to_terminal(console, tables)
    for line in study.sweep_lines(rows):
        say(console, line)
    say(console, f"written to {grid.directory.path}")
    return study.sweep_exit_code(rows)
