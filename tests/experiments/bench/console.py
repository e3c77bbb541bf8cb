"""The command `bench` as tests call it."""

import contextlib
import io

from experiments.bench.__main__ import bench
from experiments.command_line import run
from tests.experiments.commands.console import Outcome


def call(*arguments: object) -> Outcome:
    """One run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(bench, "bench", [str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())
