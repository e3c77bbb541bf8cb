"""Between Hydra's sweeper and its launcher: which cells are launched, in which order, and what became of them."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from hydra._internal.hydra import Hydra
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from experiments.compose import judge, refuse_several, with_budget
from experiments.grid import BEGUN, AnyComposed, Cell, Grid, error_row, values_of
from experiments.places import inner_place, quoted
from experiments.printable import printable
from experiments.rows import read_rows
from experiments.run_directory import ROWS, RunDirectory
from experiments.sentences import in_sentences
from experiments.study import Study
from experiments.sweeping.job import BUSY, FAULT, LOCK, held, run_job
from experiments.sweeping.watching import watched
from experiments.trust import require_trusted
from solvers.ir import BayplanError, InvalidInput, InvalidProblem, Row
from solvers.ir.errors import InfeasibleBudget

C = TypeVar("C", bound=AnyComposed)
LOCAL = "LocalLauncher"
"""Submitit's launcher on this machine, which begins all jobs that it is given at once."""
MOST_SAID = 5
"""Damaged cells named one by one."""


class Cells(Launcher, Generic[C]):
    """A launcher that has another one launch what is not done yet, hard cells first, as plain jobs of its own."""

    def __init__(self, study: Study[C], kind: str, hydra: Hydra, directory: RunDirectory) -> None:
        self.study, self.kind, self.hydra, self.directory = study, kind, hydra, directory
        self.inner: Any = None
        self.config: DictConfig = OmegaConf.create()
        self.cells: dict[tuple[str, ...], Cell[C]] = {}
        self.faults = 0
        self.told: set[Path] = set()
        self.failures: dict[str, str] = {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Nothing: the sweeper has set the other launcher up."""

    @property
    def grid(self) -> Grid[C]:
        """All cells that the sweeper has asked for, in the order in which they are run."""
        cells = {cell.folder.path: cell for cell in self.cells.values()}
        name = next(iter(cells.values())).composed.settings.name if cells else ""
        return Grid(name, self.directory, tuple(self.study.in_order(list(cells.values()))))

    def move(self, directory: RunDirectory) -> None:
        """Keep the cells in another folder."""
        before, self.directory = self.directory.path, directory
        for words, cell in self.cells.items():
            place = RunDirectory(directory.path / cell.folder.path.relative_to(before))
            self.cells[words] = replace(cell, folder=place)

    def compose(self, batch: Sequence[Sequence[str]], first: int) -> list[Cell[C]]:
        """The cells of these overrides; a bad one is refused in a sentence, before any is launched."""
        for number, words in enumerate(batch, first):
            if tuple(words) not in self.cells:
                self.cells[tuple(words)] = self._cell(list(words), number)
        found = [self.cells[tuple(words)] for words in batch]
        _say_equal(found)
        by_folder: dict[Any, Cell[C]] = {}
        for cell in self.cells.values():
            other = by_folder.setdefault(cell.folder.path, cell)
            if other.composed.yaml != cell.composed.yaml:
                raise InvalidInput(f"hydra.sweep.subdir gives two cells the folder {cell.folder.path}: leave it out")
        return found

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """As Hydra's launchers; what each job returns is the number that an optimizing sweeper makes small."""
        cells = self.compose(job_overrides, initial_job_idx)
        self._tell()
        todo = self._todo(cells)
        with watched(self.directory, self.grid, todo, self.rows):
            busy = self._launched(todo, initial_job_idx, wait=False)
            if busy:
                _say(f"another process is computing {len(busy)} of the cells: waiting for it")
                self._launched(busy, initial_job_idx, wait=True)
        return [self._returned(cell) for cell in cells]

    def rows(self, cell: Cell[C]) -> list[Row]:
        """The rows that a cell has by now: its own, or why there are none; nothing where it was not reached."""
        kept = cell.kept()
        if kept.rows is not None:
            return kept.rows
        failure = self.failures.get(str(cell.folder.path))
        try:
            rows = read_rows(cell.folder.path / ROWS)
        except InvalidInput:
            rows = []
        if rows and rows[0].outcome in ("error", "timeout", "refused") and rows[0].asked.get("policy") == "all":
            return rows
        return [] if failure is None else [error_row(cell.composed.settings.name, failure)]

    def _cell(self, words: list[str], number: int) -> Cell[C]:
        words = with_budget(self.study.root, words)
        for word in words:
            refuse_several(word)
        with in_sentences():
            config = self.hydra.config_loader.load_sweep_config(self.config, words)
            with open_dict(config):
                config.hydra.job.num, config.hydra.job.id = number, str(number)
            require_trusted(config)  # a cell may have chosen a file of its own
            place = inner_place(str(OmegaConf.select(config, "hydra.sweep.subdir")))
        composed = self.study.composed(*judge(config))
        with contextlib.suppress(InvalidProblem, InfeasibleBudget):  # not every combination fits: its row will say so
            self.study.require(composed)
        folder = RunDirectory(self.directory.path / place)
        return Cell(tuple(words), composed, values_of(words, composed.yaml), folder)

    def _todo(self, cells: Sequence[Cell[C]]) -> list[Cell[C]]:
        """The cells that are not done, once each, in order."""
        unique = {cell.folder.path: cell for cell in cells}  # an optimizing sweeper may ask twice for the same
        return list(self.study.in_order([cell for cell in unique.values() if cell.kept().rows is None]))

    def _tell(self) -> None:
        """Say what earlier runs left of the cells known by now: what is kept, damaged, lost and failed."""
        unique = {cell.folder.path: cell for cell in self.cells.values() if cell.folder.path not in self.told}
        self.told |= set(unique)
        kept = {path: cell.kept() for path, cell in unique.items()}
        damaged = [(path, one.flaw) for path, one in kept.items() if one.damaged]
        kept = {path: one for path, one in kept.items() if one.flaw != BEGUN or not _computed_now(path)}
        failed = sum(one.flaw == BEGUN and bool(self.rows(unique[path])) for path, one in kept.items())
        begun = sum(one.flaw == BEGUN for one in kept.values()) - failed
        done = sum(one.rows is not None for one in kept.values())
        if done:
            _say(f"{done} of {len(unique)} cells are done already, and kept")
        for path, flaw in damaged[:MOST_SAID]:
            _say(f"damaged and computed again: {path.name}: {flaw}")
        if len(damaged) > MOST_SAID:
            _say(f"damaged and computed again: {len(damaged) - MOST_SAID} more cells")
        for count, what in ((begun, "begun by an earlier run, and lost with it"), (failed, "failed in an earlier run")):
            if count:
                _say(f"{what}: {count} cell{'s' * (count > 1)}, computed again")

    def _launched(self, cells: Sequence[Cell[C]], first: int, wait: bool) -> list[Cell[C]]:
        """Launch cells; those that another process is computing come back."""
        self.inner.task_function = partial(run_job, kind=self.kind, wait=wait)
        busy = []
        for batch in self._batches(cells):
            for cell, done in zip(batch, self._returns(batch, first), strict=False):
                value = done._return_value
                if done.status is not JobStatus.COMPLETED:
                    self.failures[str(cell.folder.path)] = f"the cell has no rows: {value}"
                self.faults += value == FAULT
                busy += [cell] if value == BUSY else []
        return busy

    def _batches(self, cells: Sequence[Cell[C]]) -> Iterator[Sequence[Cell[C]]]:
        size = len(cells)
        if type(self.inner).__name__ == LOCAL:
            size = len(os.sched_getaffinity(0))
        for start in range(0, len(cells), max(size, 1)):
            yield cells[start : start + size]

    def _returns(self, cells: Sequence[Cell[C]], first: int) -> Sequence[JobReturn]:
        jobs = [[*cell.overrides, f"hydra.sweep.subdir={quoted(self._subdir(cell))}"] for cell in cells]
        try:
            returned: Sequence[JobReturn] = self.inner.launch(jobs, initial_job_idx=first)
            return returned
        except BayplanError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            if not any((cell.folder.path / ROWS).exists() for cell in cells):
                raise InvalidInput(f"Hydra's launcher cannot run the sweep ({reason}): choose another one") from error
            _say(f"the launcher gave up ({reason}): cells without rows are told so")
            for cell in cells:
                self.failures[str(cell.folder.path)] = f"the cell has no rows: {reason}"
            return []

    def _subdir(self, cell: Cell[C]) -> str:
        return str(cell.folder.path.relative_to(self.directory.path))

    def _returned(self, cell: Cell[C]) -> JobReturn:
        value = self.study.objective(self.rows(cell))
        return JobReturn(overrides=list(cell.overrides), status=JobStatus.COMPLETED, _return_value=value)


def _computed_now(folder: Path) -> bool:
    """Whether another process is at a cell that was begun."""
    with held(folder / LOCK, wait=False) as mine:
        return not mine


def _say_equal(cells: Sequence[Cell[Any]]) -> None:
    """A grid may name a cell several times, as in `microbatch=8,8`."""
    once = len({cell.folder.path for cell in cells})
    if once < len(cells):
        _say(f"{len(cells)} cells were asked for, and {once} differ: equal ones are computed, and counted, once")


def _say(sentence: str) -> None:
    print(f"bayplan: {printable(sentence)}", file=sys.stderr)
