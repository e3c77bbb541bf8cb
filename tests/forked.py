"""Processes that begin with PyTorch imported: forked from one that did so once, as a new Python takes seconds for it.

Of the test's own process they have the environment alone. They skip what Python does at its exit: who tests that starts
a Python.
"""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from experiments.ranks import carriers

PATIENCE_S = 200


def run_world(program: Callable[..., object], ranks: int, folder: Path, *arguments: object) -> None:
    """Call a module's function in as many processes, with torchrun's variables; one that ends badly fails the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    own = [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in range(ranks)]
    said = [folder / f"said-{rank}.txt" for rank in range(ranks)]
    codes = _codes(program, arguments, [{name: str(value) for name, value in one.items()} for one in own], said)
    assert codes == [0] * ranks, "\n".join(place.read_text() for place in said)


def run_ranks_forked(command: Sequence[str], own: Sequence[Mapping[str, str]], said: Sequence[Path]) -> list[int]:
    """In place of `carriers.run_children`: what is tested is what ranks do, not how their processes are started."""
    return _codes(carriers.main, [Path(command[-1])], own, said)


def _codes(
    program: Callable[..., object], arguments: Sequence[object], own: Sequence[Mapping[str, str]], said: Sequence[Path]
) -> list[int]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([carriers.__name__, "torch._dynamo", "runtime.swap"])
    processes = [
        context.Process(target=_become, args=(program, arguments, {**os.environ, **variables}, place))
        for variables, place in zip(own, said, strict=True)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENCE_S)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [process.exitcode or 0 for process in processes]


def _become(
    program: Callable[..., object], arguments: Sequence[object], environment: Mapping[str, str], said: Path
) -> None:
    """What a process says goes to a file; a number that is returned is its exit code."""
    with said.open("wb") as file:
        for place in (1, 2):
            os.dup2(file.fileno(), place)
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(program(*arguments))  # type: ignore[arg-type]
