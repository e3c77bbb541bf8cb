"""The cells of a sweep of trainings: each in a process of its own, none able to spoil another."""

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

import msgspec
from hydra.core.hydra_config import HydraConfig

from experiments.compose import Composed, read_settings
from experiments.config import Settings
from experiments.grid import Cell, error_row
from experiments.reporting.keep import keep_page
from experiments.rows import read_rows
from experiments.run_directory import ROWS, RunDirectory
from experiments.study import CellFault
from experiments.sweeping.parents import end_with_parent
from experiments.training.experiment import run_experiment
from solvers.ir import BayplanError, InvalidInput, Row, SwapPlan
from solvers.ir.codec import read_plan

LOG = "log.txt"
REFUSED = 3
"""The exit code of a cell's process that wrote down why there is nothing."""


def hardness(cell: Cell[Composed]) -> tuple[float, float]:
    """Little memory and a slow link come first: their plans are valid, and no slower, where there is more."""
    problem, link = cell.composed.settings.problem, cell.composed.settings.hardware.link_gb_per_s
    budget = problem.budget_fraction if problem.budget_fraction is not None else float(problem.budget_bytes or 0)
    return budget, link or 0.0


def rows_in_own_process(cell: Cell[Composed]) -> list[Row]:
    """The cell's rows, from a process of its own; raises `CellFault` where that came to nothing.

    Solvers begin from the plans of all cells beside it that have some.
    """
    cells = cell.folder.path.parent
    plans = [str(path) for path in sorted(cells.glob("*/plans/*.json")) if path.parent.parent != cell.folder.path]
    searched = [word for word in HydraConfig.get().overrides.hydra if word.startswith("hydra.searchpath=")]
    process = _fresh_processes().Process(
        target=run_cell, args=([*searched, *cell.overrides], str(cell.folder.path), plans), daemon=True
    )
    process.start()
    try:
        process.join(cell.composed.settings.cell_timeout_s)
        late = process.is_alive()
    finally:
        process.kill()
        process.join()
    if late:
        raise _failed(cell, "timeout", f"the cell took longer than {cell.composed.settings.cell_timeout_s:g} s")
    if process.exitcode == REFUSED:
        raise CellFault(read_rows(cell.folder.path / ROWS)[0])
    if process.exitcode != 0:
        raise _failed(cell, "error", f"the cell's process ended with {process.exitcode}: see {LOG} in its folder")
    return read_rows(cell.folder.path / ROWS)


@cache
def _fresh_processes() -> ForkServerContext:
    """Processes that begin with everything imported and nothing run: no device, no thread, no state of another cell."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["experiments.training.compare", "experiments.plots", "torch._dynamo"])
    return context


def run_cell(overrides: Sequence[str], folder: str, plans: Sequence[str]) -> None:
    """One cell, in its own process; a fault of Bayplan's kind becomes a row, any other one the process's exit code."""
    import torch

    end_with_parent()
    torch.set_num_threads(1)
    composed, directory = read_settings(overrides), RunDirectory(Path(folder))
    directory.text(LOG, "")
    with open(Path(folder) / LOG, "w") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        run_experiment(composed, directory, _starts(plans))
        keep_page(directory)
    except BayplanError as error:
        directory.rows([_error_row(composed.settings, str(error))])
        sys.exit(REFUSED)


def _starts(plans: Sequence[str]) -> dict[str, SwapPlan]:
    """The plans in those files, by path; files without a plan, or that a lost run left in pieces, are left out."""
    found = {}
    for path in plans:
        with contextlib.suppress(InvalidInput):
            plan = read_plan(Path(path)).plan()
            if isinstance(plan, SwapPlan):
                found[path] = plan
    return found


def _failed(cell: Cell[Composed], outcome: str, reason: str) -> CellFault:
    row = _error_row(cell.composed.settings, reason)
    return CellFault(msgspec.structs.replace(row, outcome=outcome))


def _error_row(settings: Settings, reason: str) -> Row:
    return error_row(settings.name, reason, "nothing was executed", settings.limits.seed)
