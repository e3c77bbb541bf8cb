"""Tokens a second at the best batch (Tables 3, Figures 3, 4a and 7a, §5.5): ProTrain's search and models of others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.protrain.setting import (
    BASELINES,
    PROTRAIN,
    Testbed,
    labelled,
    over,
    solved,
    step_us,
    testbed,
    value_of,
)
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.fields import require
from solvers.ir.solution import Limits
from solvers.layout.baselines import Fsdp, Zero3Offload, fits, offloaded
from solvers.layout.evaluate import evaluate, instance
from solvers.layout.systems import as_run_by, without_offload
from solvers.workload import ModelShape

WITHOUT = "no offloading"
"""Plain ZeRO-3: everything sharded over the devices, checkpointed only where it must be."""
LEAN = "deepspeed of 16 bytes"
"""DeepSpeed's rule where the host keeps 16 bytes a parameter, as Colossal-AI and FSDP do, in place of 27."""
SYSTEMS = (PROTRAIN, *BASELINES)


def best_batch(cells: Cells, *, sequence: int, rows: Sequence[Mapping[str, Any]], batches: Sequence[int]) -> Result:
    """The largest throughput of each system over the batches, by row; in the ratios ProTrain's over theirs.

    A row names shape, hardware, ranks and hosts; batches that its ranks do not divide are left out.
    """
    return _result(_found(cells, SYSTEMS, sequence, rows, batches))


def scaling(cells: Cells, *, sequence: int, rows: Sequence[Mapping[str, Any]], batches: Sequence[int]) -> Result:
    """The same for rows that grow, and each system's throughput over its own in the first row."""
    result = best_batch(cells, sequence=sequence, rows=rows, batches=batches)
    grown = []
    for system in SYSTEMS:
        points = result.named(system).points
        first = next(iter(points.values()))
        speedup = {label: over(value, first) for label, value in points.items()}
        grown.append(Series(name=f"{system} over its first", unit="x", points=speedup))
    return Result(series=(*result.series, *grown))


def with_and_without(
    cells: Cells, *, sequence: int, rows: Sequence[Mapping[str, Any]], batches: Sequence[int]
) -> Result:
    """The same, with plain ZeRO-3 beside."""
    return _result(_found(cells, (*SYSTEMS, WITHOUT), sequence, rows, batches))


def with_lean(cells: Cells, *, sequence: int, rows: Sequence[Mapping[str, Any]], batches: Sequence[int]) -> Result:
    """The same as `best_batch`, with a DeepSpeed beside that keeps less on the host."""
    return _result(_found(cells, (*SYSTEMS, LEAN), sequence, rows, batches))


Found = dict[str, dict[str, dict[str, Any] | None]]
"""By system and label."""


def _found(
    cells: Cells, systems: Iterable[str], sequence: int, rows: Sequence[Mapping[str, Any]], batches: Sequence[int]
) -> Found:
    every = tuple(systems)
    cells.total(len(every) * len(rows))
    found: Found = {system: {} for system in every}
    for label, row in labelled(rows).items():
        place = testbed(cells, row["hardware"], ranks=row["ranks"], hosts=row.get("hosts", 1), sequence=sequence)
        sizes = [batch for batch in batches if batch % place.ranks == 0]
        require(bool(sizes), f"none of the batches is a multiple of the {place.ranks} ranks of {label!r}: give one")
        for system in every:
            key = {"row": label, "system": system}
            found[system][label] = cells.get(key, best_of, place, cells.shape(row["shape"]), system, sizes)
    return found


def best_of(place: Testbed, shape: ModelShape, system: str, batches: Sequence[int]) -> dict[str, Any]:
    """The batch of the most tokens a second; None where none fits."""
    speeds = {}
    for batch in batches:
        took = _step_us(place, shape, system, batch)
        if took is not None:
            speeds[batch] = place.tokens_per_s(batch, took)
    best = max(speeds, key=lambda batch: speeds[batch], default=None)
    return {"tokens/s": None if best is None else speeds[best], "batch": best}


def _step_us(place: Testbed, shape: ModelShape, system: str, batch: int) -> int | None:
    problem = place.problem(shape, batch)
    if system == LEAN:
        return step_us(Zero3Offload().solve(as_run_by(Fsdp.NAME, problem), Limits()))
    if system != WITHOUT:
        return step_us(solved(system, problem))
    problem = without_offload(problem)
    given = instance(problem)
    plans = (offloaded(problem, len(problem.chunks), policy) for policy in ("keep", "checkpoint"))
    return next((evaluate(given, plan).end_us for plan in plans if fits(given, plan)), None)


def _result(found: Found) -> Result:
    speeds = {system: _points(cells, "tokens/s") for system, cells in found.items()}
    series = [Series(name=system, unit="tokens/s", points=points) for system, points in speeds.items()]
    for system, cells in found.items():
        series.append(Series(name=f"batch, {system}", unit="samples", points=_points(cells, "batch")))
    for system in [name for name in found if name != PROTRAIN]:
        points = {label: over(speeds[PROTRAIN][label], speed) for label, speed in speeds[system].items()}
        series.append(Series(name=f"protrain over {system}", unit="x", points=points))
    return Result(series=tuple(series))


def _points(cells: Mapping[str, Mapping[str, Any] | None], name: str) -> dict[str, Value]:
    return {label: value_of(cell, name) for label, cell in cells.items()}
