"""What a running sweep shows and keeps: cells done, time left, and all rows so far, whichever launcher runs them."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from experiments.grid import DONE, AnyComposed, Cell, Grid
from experiments.progress import stages
from experiments.run_directory import RunDirectory
from solvers.ir import Row

C = TypeVar("C", bound=AnyComposed)
EVERY_S = 0.5
ROWS_EVERY_S = 30.0
"""How often the sweep's own file of rows is written anew while cells end; each cell's is written when it ends."""


@contextlib.contextmanager
def watched(
    directory: RunDirectory, grid: Grid[C], todo: Sequence[Cell[C]], rows_of: Callable[[Cell[C]], list[Row]]
) -> Iterator[None]:
    """Show how much of `todo` is done, and keep the sweep's rows, while the block runs; they are whole when it ends."""
    ended = threading.Event()
    with stages(len(todo), time_left=True) as shown:

        def watch() -> None:
            written, done = time.monotonic(), -1
            while not ended.wait(EVERY_S):
                before, done = done, sum((cell.folder.path / DONE).exists() for cell in todo)
                shown.reach(done)
                shown.say("cells")
                if done != before and time.monotonic() - written > ROWS_EVERY_S:
                    written = time.monotonic()
                    keep_rows(directory, grid, rows_of)

        thread = threading.Thread(target=watch, name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            keep_rows(directory, grid, rows_of)


def keep_rows(directory: RunDirectory, grid: Grid[C], rows_of: Callable[[Cell[C]], list[Row]]) -> list[Row]:
    """Write the rows of all cells, each with the swept values, to the sweep's file."""
    axes = grid.axes
    rows = [cell.with_values(row, axes) for cell in grid.cells for row in rows_of(cell)]
    if rows:
        directory.rows(rows)
    return rows
