"""`bayplan compare -m`: a grid of experiments of one kind, by Hydra's sweepers and launchers."""

import contextlib
import shutil
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, open_dict, read_write
from rich.console import Console

from experiments.commands.interrupts import Interrupts
from experiments.compose import composed_by
from experiments.grid import Cell
from experiments.places import asked_place, quoted
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import CONFIG, RunDirectory, open_run_directory
from experiments.sentences import in_sentences, read_override
from experiments.study import Study
from experiments.sweeping.job import run_job
from experiments.sweeping.launching import Cells
from experiments.sweeping.processes import Processes
from experiments.sweeping.record import keep_record, remove_foreign, require_same_sweep
from experiments.sweeping.watching import keep_rows
from experiments.tables import say, to_markdown, to_terminal, to_text
from experiments.trust import PROCESSES
from solvers.ir import InvalidInput

FAULT = 70
STORES, STORAGES = ("sqlalchemy.", "redis."), "optuna.storages"
"""Whose faults are those of the place where optuna keeps its trials: by their types, and by where they are raised."""


def run_sweep(study: Study[Any], kind: str, hydra: Hydra, overrides: Sequence[str]) -> int:
    """Run every cell that is not there yet, write all rows, tables and pictures; the study's exit code."""
    with Interrupts(patient=False) as interrupts:  # SIGTERM is as Ctrl-C
        sweep = Sweep(study, kind, hydra, overrides)
        try:
            sweep.prepare()
            sweep.run()
            return sweep.end(Console())
        except KeyboardInterrupt:
            return sweep.interrupted(interrupts.asked_by)
        except InvalidInput:
            sweep.withdraw()
            raise


class Sweep:
    """One call of `bayplan compare -m`: Hydra's sweeper, its launcher, and this project's cells between them."""

    def __init__(self, study: Study[Any], kind: str, hydra: Hydra, overrides: Sequence[str]) -> None:
        self.study, self.kind, self.hydra = study, kind, hydra
        _require_one_folder(overrides)
        config = composed_by(hydra, study.root, overrides, RunMode.MULTIRUN)
        self.name, self.force = str(config.name), bool(config.force)
        self.path = place = asked_place(config, config.run_dir, "sweep")
        self.arguments = [str(word) for word in config.hydra.overrides.task]
        directory = RunDirectory(Path(place) if place is not None else Path())
        self.cells: Cells[Any] = Cells(study, kind, hydra, directory)
        self.config = config
        self.fresh = self.opened = False

    @property
    def directory(self) -> RunDirectory:
        """The sweep's folder."""
        return self.cells.directory

    def prepare(self) -> None:
        """Everything that can be refused is, before a folder is made; then the sweeper and its launcher."""
        self.cells.config = self.config
        size = self.config.hydra.sweeper.get("max_batch_size")
        if size is not None and size < 1:
            raise InvalidInput(f"hydra.sweeper.max_batch_size is {size}, below 1: choose more, or leave it out")
        known = self._known_cells()  # a bad one is refused here
        if self.path is not None and not self.force:
            require_same_sweep(Path(self.path), self.kind, self.arguments, known)
        self.fresh = self.path is None or not Path(self.path).exists()
        self.cells.move(open_run_directory(self.name, self.path))
        self.opened = True
        with read_write(self.config), open_dict(self.config):
            self.config.hydra.sweep.dir = str(self.directory.path.absolute())
        word = f"hydra.sweep.dir={quoted(str(self.directory.path.absolute()))}"
        self.config.hydra.overrides.hydra.append(word)
        cells = list(self.cells.cells.values())
        if self.force:
            (self.directory.path / CONFIG).unlink(missing_ok=True)  # of a single run: it is one no more
            remove_foreign(self.directory.path, cells)
        keep_record(self.directory, self.kind, self.arguments, cells)

    def run(self) -> None:
        """Hydra's sweeper, with this project's cells in front of its launcher."""
        sweeper = self._sweeper()
        try:
            with in_sentences():
                sweeper.sweep(arguments=self.arguments)
        except Exception as error:
            if self.config.hydra.sweeper.get("storage") is None or not _of_storage(error):
                raise
            said = str(error).strip().split("\n")[0] or type(error).__name__
            raise InvalidInput(
                f"hydra.sweeper.storage cannot be used ({said}): choose another place, and the versions of SQLAlchemy "
                "and alembic in Bayplan's extra [sweeps]"
            ) from error

    def withdraw(self) -> None:
        """A sweep that was refused before a cell had anything leaves no new folder behind."""
        if (
            self.opened
            and self.fresh
            and not any((cell.folder.path / CONFIG).exists() for cell in self.cells.grid.cells)
        ):
            shutil.rmtree(self.directory.path, ignore_errors=True)
            with contextlib.suppress(OSError):
                for one in self.directory.made[1:]:
                    one.rmdir()

    def interrupted(self, by: str | None) -> int:
        """What is kept, in a line of stderr; the exit code."""
        if not self.opened:
            raise KeyboardInterrupt  # there is nothing yet to tell of
        grid = self.cells.grid
        keep_rows(self.directory, grid, self.cells.rows)
        done = sum(cell.kept().rows is not None for cell in grid.cells)
        so_far = (
            f", {done} of {len(grid.cells)} cells; those that were running begin again when the same command goes on "
            f"with run_dir={self.directory.path}"
        )
        return interrupted(self.directory, f" by {by}" if by else "", so_far)

    def end(self, console: Console) -> int:
        """Tables and pictures of all rows; the exit code."""
        grid = self.cells.grid
        keep_record(self.directory, self.kind, self.arguments, grid.cells)
        rows = keep_rows(self.directory, grid, self.cells.rows)
        tables = self.study.sweep_tables(rows, grid.axes)
        self.directory.text("table.txt", to_text(tables))
        self.directory.text("table.md", to_markdown(tables))
        self.study.draw_sweep(grid, rows)
        keep_page(self.directory)
        to_terminal(console, tables)
        for line in self.study.sweep_lines(rows):
            say(console, line)
        failed = sum(cell.kept().rows is None for cell in grid.cells)
        told = f"{failed} of {len(grid.cells)} cells failed, " if failed else ""
        say(console, f"{told}written to {self.directory.path}")
        if self.cells.faults:
            return FAULT
        return 1 if failed else self.study.sweep_exit_code(rows)  # as Hydra's, where a job has failed

    def _known_cells(self) -> list[Cell[Any]] | None:
        """All cells of a grid; None where the sweeper chooses them one after the other."""
        params = self.config.hydra.sweeper.get("params")
        if not self.config.hydra.sweeper.get("_target_", "").endswith(f".{BasicSweeper.__name__}"):
            return None
        with in_sentences():
            words = [f"{key}={value}" for key, value in (params or {}).items()] + self.arguments
            parsed = OverridesParser.create(config_loader=self.hydra.config_loader).parse_overrides(words)
            batches = BasicSweeper.split_arguments(parsed, None)
        batch = [words for one in batches for words in one]
        if not batch:
            raise InvalidInput(f"the grid of {' '.join(words)} has no cell: give each setting a value at least")
        return self.cells.compose(batch, 0)

    def _sweeper(self) -> Any:
        """Hydra's sweeper, set up as Hydra does it; what launches for it is `self.cells`."""
        config, own = self.config, self.config.hydra.launcher.get("_target_") == PROCESSES
        context = HydraContext(config_loader=self.hydra.config_loader, callbacks=Callbacks())
        task = partial(run_job, kind=self.kind, wait=False)
        launcher = None
        if own:
            launcher = Processes(int(config.hydra.launcher.workers), self.kind)
            launcher.setup(hydra_context=context, task_function=task, config=config)
            config = _with_basic_launcher(config)
        with in_sentences():
            sweeper = Plugins.instance().instantiate_sweeper(config=config, hydra_context=context, task_function=task)
        inner: Any = getattr(sweeper, "sweeper", sweeper)  # optuna's is a shell around the one that sweeps
        self.cells.inner = launcher or inner.launcher
        inner.launcher = self.cells
        inner.validate_batch_is_legal = lambda batch: None  # they are composed, and judged, already
        return sweeper


def _of_storage(error: Exception) -> bool:
    """Whether it was raised by what keeps optuna's trials; the library's own assertions are no type of its own."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return type(error).__module__.startswith(STORES) or any(name.startswith(STORAGES) for name in modules)


def _with_basic_launcher(config: DictConfig) -> DictConfig:
    """What Hydra instantiates in place of a launcher that is no plugin of Hydra's."""
    config = config.copy()
    with read_write(config), open_dict(config):
        config.hydra.launcher = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}
    return config


def _require_one_folder(overrides: Sequence[str]) -> None:
    """Raise `InvalidInput` where cells would not agree on the sweep's kind, name or folder."""
    keys = {word.lstrip("+").partition("=")[0]: word for word in overrides}
    for key in ("name", "run_dir", "force", "experiment"):
        if key in keys and read_override(keys[key]).is_sweep_override():
            raise InvalidInput(f"{keys[key]} holds several values, but a sweep has one {key}: give one of each")
