"""The analytic time of the paper's search beside the lanes', on the models of Table 1 (ours)."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.protrain.setting import Testbed, labelled, series_of, testbed
from experiments.reproduction import Cells, Result
from solvers.layout.analytic import Analytic
from solvers.layout.evaluate import Instance, evaluate, instance
from solvers.layout.interleaved import interleaved_plan
from solvers.layout.search import Space
from solvers.workload import ModelShape

Numbers = npt.NDArray[np.int64]
PERSIST, BUFFERS, CELL = range(3)
POOL = 200
"""Number of draws for each configuration wanted, since few fit."""
NONE = "none that fits drawn"
UNITS = {
    "configurations with spare buffers": "",
    "spare buffers: lane time over analytic, median": "x",
    "spare buffers: lane time over analytic, smallest": "x",
    "spare buffers: lane time over analytic, largest": "x",
    "configurations with the least buffers": "",
    "least buffers: lane time over analytic, median": "x",
    "least buffers: lane time over analytic, smallest": "x",
    "least buffers: lane time over analytic, largest": "x",
    "best analytic: lane time over analytic": "x",
    "best analytic over the best of the kept, on the lanes": "x",
}


def analytic(
    cells: Cells,
    *,
    ranks: int,
    sequence: int,
    rows: Sequence[Mapping[str, Any]],
    batches: Sequence[int],
    draws: int,
    keep: int,
) -> Result:
    """For at most `draws` configurations of those that fit, and for the search's `keep` best; labels `ROW batch N`.

    Half of the draws have the least buffers that their blocks need, half have more.
    """
    cells.total(len(rows) * len(batches))
    found = {}
    for label, row in labelled(rows).items():
        place, shape = testbed(cells, row["hardware"], ranks=ranks, sequence=sequence), cells.shape(row["shape"])
        for batch in batches:
            key = {"row": label, "batch": batch}
            found[f"{label} batch {batch}"] = cells.get(key, _compared, place, shape, batch, draws, keep, cells.seed)
    return Result(series=tuple(series_of(found, UNITS)))


def _compared(place: Testbed, shape: ModelShape, batch: int, draws: int, keep: int, seed: int) -> dict[str, Any]:
    given = instance(place.problem(shape, batch))
    space = Space(given)
    best = space.best(keep)
    if not best:
        return dict.fromkeys(UNITS)
    kept = [evaluate(given, one.plan(given.problem)).end_us for one in best]
    first = min(range(len(best)), key=lambda number: best[number].analytic_us)
    drawn = drawn_from(space, draws * POOL, np.random.default_rng(seed))
    spare = drawn[:, BUFFERS] > space.least_buffers[drawn[:, PERSIST]]
    return {
        **_ratios("spare buffers", _over(given, space, drawn[spare][: draws // 2])),
        **_ratios("least buffers", _over(given, space, drawn[~spare][: draws // 2])),
        "best analytic: lane time over analytic": kept[first] / best[first].analytic_us,
        "best analytic over the best of the kept, on the lanes": kept[first] / min(kept),
    }


def _ratios(name: str, ratios: Sequence[float]) -> dict[str, float | str]:
    statistics: dict[str, Callable[[Sequence[float]], float]] = {"median": median, "smallest": min, "largest": max}
    counted: dict[str, float | str] = {f"configurations with {name.replace('least', 'the least')}": len(ratios)}
    for title, statistic in statistics.items():
        counted[f"{name}: lane time over analytic, {title}"] = statistic(ratios) if ratios else NONE
    return counted


def drawn_from(space: Space, count: int, draw: np.random.Generator) -> Numbers:
    """Configurations that fit device and host: places in the space's counts, buffers, cells of its layouts."""
    problem, layouts = space.problem, space.layouts
    persist = draw.integers(len(space.persist), size=count)
    least, most = space.least_buffers[persist], len(problem.chunks) - space.persist[persist]
    more = least + (draw.random(count) * np.maximum(0, most - least + 1)).astype(np.int64)
    buffers = np.where(draw.random(count) * 2 < 1, least, more)
    cell = draw.integers(layouts.valid.size, size=count)
    device = space.static_bytes[persist] + buffers * problem.chunk_bytes + layouts.peak_bytes.ravel()[cell]
    host = space.host_bytes[persist] + layouts.swapped_bytes[cell // layouts.valid.shape[1]]
    fits = layouts.valid.ravel()[cell] & (device <= problem.device_bytes) & (host <= problem.host_bytes)
    found: Numbers = np.stack([persist, buffers, cell], axis=1)[fits & (buffers <= most)]
    return found


def _over(given: Instance, space: Space, drawn: Numbers) -> list[float]:
    """Lane time over analytic time of each."""
    if not len(drawn):
        return []
    layouts = space.layouts
    analytic_us = Analytic(given, layouts, space.persist).times_us(*drawn.T)
    ratios = []
    for (persist, buffers, cell), time_us in zip(drawn.tolist(), analytic_us.tolist(), strict=True):
        row, column = divmod(cell, layouts.valid.shape[1])
        numbers = (space.persist[persist], buffers, layouts.swap[row], layouts.checkpoint[column])
        plan = interleaved_plan(given.problem, *map(int, numbers))
        ratios.append(evaluate(given, plan).end_us / time_us)
    return ratios
