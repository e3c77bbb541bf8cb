"""How long the search takes on this machine, for every model of Table 1 (§5.3.4)."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.protrain.setting import Testbed, labelled, series_of, testbed
from experiments.reproduction import Cells, Result
from solvers.ir.solution import Limits
from solvers.layout.search import Search
from solvers.workload import ModelShape

MILLISECONDS = 1000
UNITS = {"search": "ms", "search, processor time": "ms", "making the problem": "ms"}


def search_time(
    cells: Cells, *, ranks: int, sequence: int, batches: Sequence[int], rows: Sequence[Mapping[str, Any]], repeats: int
) -> Result:
    """The shortest of `repeats` searches, and of making the problem from the shape; labels `ROW batch N`.

    Processor time is what the search itself used, also where other processes wait for the same processors.
    """
    cells.total(len(rows) * len(batches))
    found = {}
    for label, row in labelled(rows).items():
        place, shape = testbed(cells, row["hardware"], ranks=ranks, sequence=sequence), cells.shape(row["shape"])
        for batch in batches:
            found[f"{label} batch {batch}"] = cells.get(
                {"row": label, "batch": batch}, _timed, place, shape, batch, repeats
            )
    return Result(series=tuple(series_of(found, UNITS)))


def _timed(place: Testbed, shape: ModelShape, batch: int, repeats: int) -> dict[str, Any]:
    making, searching, used = [], [], []
    for _ in range(repeats):
        began = time.perf_counter()
        problem = place.problem(shape, batch)
        made, used_before = time.perf_counter(), time.process_time()
        Search().solve(problem, Limits())
        used.append(time.process_time() - used_before)
        searching.append(time.perf_counter() - made)
        making.append(made - began)
    shortest = map(min, (searching, used, making))
    return {name: MILLISECONDS * seconds for name, seconds in zip(UNITS, shortest, strict=True)}
