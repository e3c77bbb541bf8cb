"""ProTrain's own values against each other, how far models reach, what its search costs (§1, §5.1 to §5.3)."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.protrain.setting import PROTRAIN, Testbed, labelled, largest, testbed
from experiments.protrain.sizes import can_hold
from experiments.reproduction import Cells, Result, Series, scalar
from experiments.reproduction.sources import ROOT
from experiments.rows import read_rows
from solvers.ir.solution import Limits
from solvers.layout.search import Search
from solvers.workload import ModelShape


def consistency(cells: Cells, *, ratios: Mapping[str, Sequence[float]]) -> Result:
    """Labels of `ratios`: the first printed value over the second."""
    return Result(
        series=(Series(name="ratio", unit="x", points={label: one / other for label, (one, other) in ratios.items()}),)
    )


def longest(cells: Cells, *, rows: Sequence[Mapping[str, Any]], step: int, most: int) -> Result:
    """Labels of `rows`: the longest sequence that one sample a rank can have, in multiples of `step`, up to `most`."""
    points = {}
    for label, row in labelled(rows).items():
        shape, place = cells.shape(row["shape"]), testbed(cells, row["hardware"], ranks=row["ranks"], sequence=step)
        points[label] = cells.get({"row": label}, _longest, place, shape, step, most // step)
    return Result(series=(Series(name="longest sequence", unit="tokens", points=points),))


def batches(
    cells: Cells, *, rows: Sequence[Mapping[str, Any]], systems: Sequence[str], sequence: int, most: int
) -> Result:
    """Labels `ROW SYSTEM`: the largest batch, in whole samples a rank, that the system can hold, up to `most`."""
    points = {}
    for label, row in labelled(rows).items():
        place = testbed(cells, row["hardware"], ranks=row["ranks"], sequence=sequence)
        for system in systems:
            key = {"row": label, "system": system}
            points[f"{label} {system}"] = cells.get(key, _largest, place, cells.shape(row["shape"]), system, most)
    return Result(series=(Series(name="largest batch", unit="samples", points=points),))


def search_time(cells: Cells, *, rows: Sequence[Mapping[str, Any]], sequence: int, repeats: int) -> Result:
    """Labels of `rows`: seconds of `search` on this machine's processor, the median of the repeats."""
    points = {}
    for label, row in labelled(rows).items():
        place = testbed(cells, row["hardware"], ranks=row["ranks"], sequence=sequence)
        points[label] = cells.get({"row": label}, _search_s, place, cells.shape(row["shape"]), row["batch"], repeats)
    known = [value for value in points.values() if value is not None]
    mean = scalar("search time, mean", "s", statistics.fmean(known) if known else None)
    return Result(series=(Series(name="search time", unit="s", points=points), mean))


def steps(cells: Cells, *, rows: str) -> Result:
    """Labels `MODEL, LAYOUT`: the deviation of the predicted step from the executed one, of kept rows."""
    kept = [row for row in read_rows(ROOT / rows) if "predicted_step_us" in row.figures and not row.asked["noise"]]
    ours, objective = {}, {}
    for row in kept:
        label, step = f"{row.asked['model']}, {row.asked['policy']}", row.figures["step_us"]
        ours[label] = 100 * (row.figures["predicted_step_us"] / step - 1)
        objective[label] = 100 * (row.figures["planned_step_us"] / step - 1)
    commits = ", ".join(sorted({str(row.commit) for row in kept}))
    return Result(
        series=(
            Series(name="error of the step", unit="%", points=ours),
            Series(name="error of the objective", unit="%", points=objective),
        ),
        notes=(f"Executed at commit {commits} by `python -m experiments.layout.predicted`, kept in {rows}.",),
    )


def _longest(place: Testbed, shape: ModelShape, step: int, most: int) -> int:
    return step * largest(_holds(shape, lambda count: place._replace(sequence=count * step), place.ranks), most)


def _holds(shape: ModelShape, at: Callable[[int], Testbed], batch: int) -> Callable[[int], bool]:
    return lambda count: can_hold(PROTRAIN, at(count).problem(shape, batch))


def _largest(place: Testbed, shape: ModelShape, system: str, most: int) -> int:
    ranks = place.ranks
    return ranks * largest(lambda count: can_hold(system, place.problem(shape, ranks * count)), most // ranks)


def _search_s(place: Testbed, shape: ModelShape, batch: int, repeats: int) -> float:
    problem = place.problem(shape, batch)
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        Search().solve(problem, Limits())
        spent.append(time.process_time() - began)
    return statistics.median(spent)
