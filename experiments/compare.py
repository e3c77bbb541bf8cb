"""`bayplan compare`: one experiment of any kind, written down and shown; with `-m` a grid of them."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from experiments.compose import split_flags
from experiments.kinds import kind_of, study_of
from experiments.run_directory import RunDirectory, interrupted, open_run_directory
from experiments.study import Ran, Study
from experiments.sweep import run_sweep
from experiments.tables import say, to_terminal


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: the answer is no. Raises `InvalidInput` on a bad command line or model."""
    study = study_of(kind_of(argv))
    words, flags = split_flags(argv, {"-m", "--multirun", "-h", "--help"})
    if flags & {"-h", "--help"}:
        print(study.usage, end="")
        return 0
    return run_sweep(study, words) if flags else run_alone(study, words)


def run_alone(study: Study[Any], words: Sequence[str]) -> int:
    """One experiment; what it found stays in its folder, and nothing does where its input was bad."""
    composed = study.read(words)
    study.require(composed)
    directory = open_run_directory(composed.settings.name, composed.settings.run_dir)
    try:
        ran = study.run(composed, directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    show(Console(), ran, directory)
    return study.exit_code(ran.rows)


def show(console: Console, ran: Ran, directory: RunDirectory) -> None:
    """The tables, what there is to say, and where the files are."""
    to_terminal(console, ran.tables)
    for line in ran.lines:
        say(console, line)
    say(console, f"{ran.spent}written to {directory.path}")
