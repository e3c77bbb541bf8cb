"""The cells of a sweep of trainings: each in a process of its own, none able to spoil another."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

import msgspec

from experiments.compose import Composed, read_settings
from experiments.config import Settings
from experiments.grid import DONE, Cell
from experiments.rows import commit, read_rows
from experiments.run_directory import ROWS, RunDirectory
from experiments.training.experiment import run_experiment
from solvers.ir import BayplanError, Row, SwapPlan
from solvers.ir.codec import read_plan

LOG = "log.txt"


def hardness(cell: Cell[Composed]) -> tuple[float, float]:
    """Little memory and a slow link come first: their plans are valid, and no slower, where there is more."""
    problem, link = cell.composed.settings.problem, cell.composed.settings.hardware.link_gb_per_s
    budget = problem.budget_fraction if problem.budget_fraction is not None else float(problem.budget_bytes or 0)
    return budget, link or 0.0


def rows_in_own_process(cell: Cell[Composed], cells: Sequence[Cell[Composed]]) -> list[Row]:
    """The cell's rows: those of an earlier run if its settings are the same, else those of a process of its own."""
    known = cell.known_rows()
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
    context.set_forkserver_preload(["experiments.training.compare", "torch._dynamo"])
    return context


def run_cell(overrides: Sequence[str], folder: str, plans: Sequence[str]) -> None:
    """One cell, in its own process; a fault of Bayplan's kind becomes a row, any other one the process's exit code."""
    import torch

    torch.set_num_threads(1)
    composed, directory = read_settings(overrides), RunDirectory(Path(folder))
    (directory.path / DONE).unlink(missing_ok=True)  # an earlier run's, with other settings
    directory.text(LOG, "")
    with open(Path(folder) / LOG, "w") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        run_experiment(composed, directory, _starts(plans))
        directory.text(DONE, "")
    except BayplanError as error:
        directory.rows([_error_row(composed.settings, str(error))])


def _starts(plans: Sequence[str]) -> dict[str, SwapPlan]:
    """The plans in those files, by path; files without a plan are left out."""
    found = {path: read_plan(Path(path)).plan() for path in plans}
    return {path: plan for path, plan in found.items() if isinstance(plan, SwapPlan)}


def _failed(cell: Cell[Composed], outcome: str, reason: str) -> Row:
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
