"""`bayplan compare -m`: a grid of experiments, each cell in a process of its own, none able to spoil another."""

import hashlib
import multiprocessing
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import msgspec
from omegaconf import OmegaConf
from rich.console import Console

from experiments.compare import interrupted, print_rows, run_experiment
from experiments.compose import Composed, expand_grid, read_grid, read_settings
from experiments.config import Settings
from experiments.plots import png_bytes, svg_text, sweep_figure
from experiments.progress import stages
from experiments.rows import commit, read_rows
from experiments.run_directory import CONFIG, ROWS, RunDirectory, open_run_directory
from experiments.sweep_rows import monotony, sweep_lines
from experiments.tables import axis_name, sweep_tables, to_markdown, to_text
from solvers.ir import BayplanError, InvalidInput, Row, SwapPlan
from solvers.ir.codec import read_plan, read_text

LOG = "log.txt"


@dataclass(frozen=True)
class Cell:
    """One experiment of the grid: its overrides, its settings, the swept values, and its folder."""

    overrides: tuple[str, ...]
    composed: Composed
    values: Mapping[str, Any]
    folder: RunDirectory

    @property
    def hardness(self) -> tuple[float, float]:
        """Little memory and a slow link come first: their plans are valid, and no slower, where there is more."""
        problem, link = self.composed.settings.problem, self.composed.settings.hardware.link_gb_per_s
        budget = problem.budget_fraction if problem.budget_fraction is not None else float(problem.budget_bytes or 0)
        return budget, link or 0.0


def run_sweep(overrides: Sequence[str]) -> int:
    """Run every cell that is not there yet, write all rows and one table; 0, whatever the cells say."""
    grid = [(words, read_settings(words)) for words in expand_grid(overrides, read_grid(overrides))]
    name, directory = _shared(grid)
    common = set.intersection(*(set(words) for words, _ in grid))
    cells = [_cell(words, one, directory.path / "cells" / _folder(words, common)) for words, one in grid]
    cells.sort(key=lambda cell: cell.hardness)
    axes = _axes(cells)
    try:
        rows = _run_cells(cells, axes, directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    tables = sweep_tables(rows, axes, monotony(rows))
    directory.text("table.txt", to_text(tables))
    directory.text("table.md", to_markdown(tables))
    lines = sweep_lines(rows, axes) if len(axes) == 2 else []
    if lines:
        figure = sweep_figure(lines, axis_name(axes[0]), f"{name}: step time of the plans")
        directory.text("sweep.svg", svg_text(figure))
        directory.binary("sweep.png", png_bytes(figure))
    print_rows(Console(), [row for row in rows if row.outcome == "error"], tables, directory)
    return 0


def _run_cells(cells: Sequence[Cell], axes: Sequence[str], directory: RunDirectory) -> list[Row]:
    rows: list[Row] = []
    with stages(len(cells)) as shown:
        for cell in cells:
            with shown.stage(f"{cell.folder.path.name} ({len(rows)} rows so far)"):
                rows += [_with_values(row, cell, axes) for row in _rows_of(cell, cells)]
            directory.rows(rows)
    return rows


def _shared(grid: Sequence[tuple[Sequence[str], Composed]]) -> tuple[str, RunDirectory]:
    """The sweep's name and folder; raises `InvalidInput` where the cells do not agree on them."""
    named = {(one.settings.name, one.settings.run_dir) for _, one in grid}
    if len(named) > 1:
        raise InvalidInput(f"name and run_dir hold {len(named)} values, but a sweep has one folder: give one of each")
    ((name, run_dir),) = named
    return name, open_run_directory(name, run_dir)


def _folder(overrides: Sequence[str], common: Collection[str]) -> str:
    """A name that people can read, of what is not common to all cells, and a hash that keeps two cells apart."""
    shown = ",".join(word for word in overrides if word not in common)
    digest = hashlib.sha256("\n".join(overrides).encode()).hexdigest()[:8]
    return f"{re.sub('[^A-Za-z0-9.=,_-]+', '_', shown)[:100] or 'all'}-{digest}"


def _cell(overrides: Sequence[str], composed: Composed, folder: Path) -> Cell:
    values = {}
    config = OmegaConf.create(composed.yaml)
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        found = OmegaConf.select(config, key)
        values[key] = found if isinstance(found, bool | int | float | str) else value
    return Cell(tuple(overrides), composed, values, RunDirectory(folder))


def _axes(cells: Sequence[Cell]) -> list[str]:
    """The settings whose values differ from cell to cell."""
    keys = list(dict.fromkeys(key for cell in cells for key in cell.values))
    return [key for key in keys if len({str(cell.values.get(key)) for cell in cells}) > 1]


def _with_values(row: Row, cell: Cell, axes: Sequence[str]) -> Row:
    return msgspec.structs.replace(row, asked={**row.asked, **{axis: cell.values.get(axis) for axis in axes}})


def _rows_of(cell: Cell, cells: Sequence[Cell]) -> list[Row]:
    """The cell's rows: those of an earlier run if its settings are the same, else those of a process of its own."""
    known = _known_rows(cell)
    if known is not None:
        return known
    plans = [str(path) for other in cells for path in sorted((other.folder.path / "plans").glob("*.json"))]
    process = _fresh_processes().Process(
        target=run_cell, args=(cell.overrides, str(cell.folder.path), plans), daemon=True
    )
    process.start()
    try:
        process.join(cell.composed.settings.cell_timeout_s)
        late = process.is_alive()
    finally:
        process.kill()
        process.join()
    if late:
        return [_failed(cell, "timeout", f"the cell took longer than {cell.composed.settings.cell_timeout_s:g} s")]
    if process.exitcode != 0:
        return [_failed(cell, "error", f"the cell's process ended with {process.exitcode}: see {LOG} in its folder")]
    return read_rows(cell.folder.path / ROWS)


@cache
def _fresh_processes() -> ForkServerContext:
    """Processes that begin with everything imported and nothing run: no device, no thread, no state of another cell."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["experiments.sweep", "torch._dynamo"])
    return context


def _known_rows(cell: Cell) -> list[Row] | None:
    done = cell.folder.path / "done"
    if not done.exists() or read_text(cell.folder.path / CONFIG) != cell.composed.yaml:
        return None
    return read_rows(cell.folder.path / ROWS)


def run_cell(overrides: Sequence[str], folder: str, plans: Sequence[str]) -> None:
    """One cell, in its own process; a fault of Bayplan's kind becomes a row, any other one the process's exit code."""
    import torch

    torch.set_num_threads(1)
    composed, directory = read_settings(overrides), RunDirectory(Path(folder))
    (directory.path / "done").unlink(missing_ok=True)  # an earlier run's, with other settings
    directory.text(LOG, "")
    with open(Path(folder) / LOG, "w") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        run_experiment(composed, directory, _starts(plans))
        directory.text("done", "")
    except BayplanError as error:
        directory.rows([_error_row(composed.settings, str(error))])


def _starts(plans: Sequence[str]) -> dict[str, SwapPlan]:
    """The plans in those files, by path; files without a plan are left out."""
    found = {path: read_plan(Path(path)).plan() for path in plans}
    return {path: plan for path, plan in found.items() if isinstance(plan, SwapPlan)}


def _failed(cell: Cell, outcome: str, reason: str) -> Row:
    row = _error_row(cell.composed.settings, reason)
    return msgspec.structs.replace(row, outcome=outcome)


def _error_row(settings: Settings, reason: str) -> Row:
    return Row(
        experiment=settings.name,
        asked={"policy": "all"},
        outcome="error",
        figures={},
        provenance="nothing was executed",
        commit=commit(),
        seed=settings.limits.seed,
        reason=reason,
    )
