"""One cell of a sweep, in whichever process or on whichever host Hydra's launcher runs it."""

import contextlib
import fcntl
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.compose import judge
from experiments.grid import Cell, error_row, values_of
from experiments.kinds import study_of
from experiments.run_directory import RunDirectory
from experiments.study import CellFault
from experiments.sweeping.parents import end_loky_with_parent
from solvers.ir import BayplanError

LOCK, LOG = ".lock", "log.txt"
ENDED, FAILED, FAULT, BUSY = "ended", "failed", "fault", "busy"
"""What a job says of its cell: it has rows; rows of a failure; a fault of Bayplan's own; another process has it."""


def run_job(config: DictConfig, kind: str, wait: bool) -> str:
    """Compute a cell that nobody has computed; `wait` for a process that is at it, else say so."""
    end_loky_with_parent()
    study = study_of(kind)
    hydra = HydraConfig.get()
    folder, overrides = RunDirectory(Path(hydra.runtime.output_dir)), tuple(hydra.overrides.task)
    composed = study.composed(*judge(config))
    cell = Cell(overrides, composed, values_of(overrides, composed.yaml), folder)
    with held(folder.path / LOCK, wait) as mine:
        if not mine:
            return BUSY
        if cell.kept().rows is not None:
            return ENDED
        cell.begin()
        try:
            cell.finish(study.run_cell(cell))
            return ENDED
        except CellFault as fault:
            folder.rows([fault.row])
        except BayplanError as error:
            folder.rows([error_row(composed.settings.name, str(error))])
        except Exception as error:
            folder.text(LOG, traceback.format_exc())
            reason = f"a fault of Bayplan's own ({type(error).__name__}: {error}): see {LOG} in its folder"
            folder.rows([error_row(composed.settings.name, " ".join(reason.split()))])
            return FAULT
        return FAILED


@contextlib.contextmanager
def held(path: Path, wait: bool) -> Iterator[bool]:
    """Whether this process has the cell for itself, on every host that shares its folder; free again when it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)
