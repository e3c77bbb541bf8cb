"""Processes that begin with PyTorch imported: forked from one that did so once, as a new Python takes seconds for it.

They are as separate as others: of the test's own process they have the environment alone. They end without what a
Python does at its exit: a test of that starts one.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

PATIENCE_S = 200


def run_forked(
    program: Callable[..., object], calls: Sequence[tuple[Sequence[object], Mapping[str, str]]], folder: Path
) -> None:
    """Call a module's function with these arguments and environment variables, each in a process, all at once.

    One that ends badly, or does not end, fails the test with what all said; `folder` takes that.
    """
    said = [folder / f"said-{number}.txt" for number in range(len(calls))]
    processes = [
        _context().Process(target=_become, args=(program, arguments, {**os.environ, **variables}, place))
        for (arguments, variables), place in zip(calls, said, strict=True)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENCE_S)
        codes = [process.exitcode for process in processes]
        assert codes == [0] * len(calls), "\n".join(place.read_text() for place in said)
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "torch.distributed.tensor", "runtime.swap", "runtime.ranks"])
    return context


def _become(
    program: Callable[..., object], arguments: Sequence[object], environment: Mapping[str, str], said: Path
) -> None:
    """What each process does: its own words go to a file."""
    with said.open("wb") as file:
        for place in (1, 2):
            os.dup2(file.fileno(), place)
    os.environ.update(environment)
    program(*arguments)
    sys.stdout.flush()
