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

from experiments.ranks import carriers

Program = Callable[..., object]
PATIENCE_S = 200


def run_forked(program: Program, calls: Sequence[tuple[Sequence[object], Mapping[str, str]]], folder: Path) -> None:
    """Call a module's function with these arguments and environment variables, each in a process, all at once.

    One that ends badly, or does not end, fails the test with what all said; `folder` takes that.
    """
    said = [folder / f"said-{number}.txt" for number in range(len(calls))]
    assert _ended(program, calls, said) == [0] * len(calls), "\n".join(place.read_text() for place in said)


def run_ranks_forked(command: Sequence[str], own: Sequence[Mapping[str, str]], said: Sequence[Path]) -> list[int]:
    """In place of `carriers.run_children`: what is tested is what ranks do, not how their processes are started."""
    assert command[1:3] == ["-m", "experiments.ranks.carriers"]
    return _ended(carriers.main, [((Path(command[3]),), variables) for variables in own], said)


def _ended(
    program: Program, calls: Sequence[tuple[Sequence[object], Mapping[str, str]]], said: Sequence[Path]
) -> list[int]:
    """The exit codes; −9 of one that had to be killed."""
    processes = [
        _context().Process(target=_become, args=(program, arguments, {**os.environ, **variables}, place))
        for (arguments, variables), place in zip(calls, said, strict=True)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENCE_S)
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
    return [process.exitcode or 0 for process in processes]


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([carriers.__name__, "torch._dynamo", "runtime.swap"])
    return context


def _become(program: Program, arguments: Sequence[object], environment: Mapping[str, str], said: Path) -> None:
    """What each process does: its own words go to a file; a number that is returned is its exit code."""
    with said.open("wb") as file:
        for place in (1, 2):
            os.dup2(file.fileno(), place)
    os.environ.update(environment)
    sys.exit(program(*arguments))
