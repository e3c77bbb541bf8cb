"""`bayplan compare`: one experiment of any kind, written down and shown; with `-m` a grid of them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra.core.utils import JobStatus, run_job
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict, read_write
from rich.console import Console

from experiments.commands.interrupts import Interrupts, end_where_asked
from experiments.compose import composed_by, hydra_of, judge
from experiments.flags import read_flags
from experiments.kinds import kind_of, study_of
from experiments.places import asked_place
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import SWEEP, RunDirectory, open_run_directory, require_same
from experiments.showing import show
from experiments.study import Ran, Study
from experiments.sweep import run_sweep
from experiments.tables import say, to_terminal


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: the answer is no. Raises `InvalidInput` on a bad command line or model."""
    flags = read_flags(argv)
    kind = kind_of(flags.words)
    study = study_of(kind)
    with hydra_of(study.root) as hydra:
        if flags.shows:
            return show(hydra, study.root, flags, study.usage)
        if flags.sweeps:
            return run_sweep(study, kind, hydra, flags.words)
        return run_alone(study, hydra, flags.words)


def run_alone(study: Study[Any], hydra: Hydra, words: Sequence[str]) -> int:
    """One experiment; what it found stays in its folder, and nothing does where its input was bad."""
    with Interrupts(patient=False) as interrupts:  # SIGTERM is as Ctrl-C
        config = composed_by(hydra, study.root, words)
        composed = study.composed(*judge(config))
        settings = composed.settings
        study.require(composed)
        place = asked_place(config, settings.run_dir, "run")
        if place is not None and not settings.force:
            require_same(Path(place), composed.yaml)
        directory = open_run_directory(settings.name, place)
        (directory.path / SWEEP).unlink(missing_ok=True)  # overwritten by force: it is no sweep's folder any more
        if config.hydra.job.chdir:
            directory = directory.absolute()
        try:
            ran: Ran = as_hydras_job(hydra, config, directory, lambda _: study.run(composed, directory))
            end_where_asked()
            keep_page(directory)
        except KeyboardInterrupt:
            return interrupted(directory, f" by {interrupts.asked_by}" if interrupts.asked_by else "")
        finally:
            directory.remove_if_empty()
        show_ran(Console(), ran, directory)
        return study.exit_code(ran.rows)


def as_hydras_job(hydra: Hydra, config: DictConfig, directory: RunDirectory, task: Any) -> Any:
    """Run it as Hydra runs a job: its configuration in `.hydra`, its working folder, environment and logging."""
    with read_write(config), open_dict(config):
        config.hydra.run.dir = str(directory.path)
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks())
    done = run_job(task, config, job_dir_key="hydra.run.dir", job_subdir_key=None, hydra_context=context)
    if done.status is not JobStatus.COMPLETED:  # asking for the value would print a line of Hydra's, too
        assert isinstance(done._return_value, Exception)
        raise done._return_value
    return done.return_value


def show_ran(console: Console, ran: Ran, directory: RunDirectory) -> None:
    """The tables, what there is to say, and where the files are."""
    to_terminal(console, ran.tables)
    for line in ran.lines:
        say(console, line)
    say(console, f"{ran.spent}written to {directory.path}")


if __name__ == "__main__":
    from experiments.cli import main as bayplan

    sys.exit(bayplan(["compare", *sys.argv[1:]]))
