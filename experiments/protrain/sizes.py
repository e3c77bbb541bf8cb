"""The largest models that can be trained at all (Table 2): by memory alone, with one sample a rank."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from experiments.protrain.setting import BASELINES, GIB, PROTRAIN, Testbed, labelled, largest, over, series_of, testbed
from experiments.reproduction import Cells, Result, Series
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.layout.baselines import buffers_of_neighbours, fits, offloaded
from solvers.layout.evaluate import device_bytes, host_bytes, instance, least_buffers
from solvers.layout.smallest import smallest_plan
from solvers.layout.systems import as_run_by
from solvers.workload import ModelShape

SYSTEMS = (PROTRAIN, *BASELINES)
BILLION = 10**9
UNITS = {"device": "GiB", "device memory": "GiB", "host": "GiB", "host memory": "GiB", "fits": ""}


def table_2(
    cells: Cells, *, sequence: int, testbeds: Sequence[Mapping[str, Any]], sizes: Sequence[str], base: str, layers: int
) -> Result:
    """Labels `TESTBED`: the largest of the sizes that ProTrain can train, and of `base` grown layer by layer.

    Labels `TESTBED SIZE`: the least that ProTrain needs for a size. The growing model has at most `layers` layers.
    """
    cells.total(len(testbeds) * (len(sizes) + 1))
    needs, reached, grown = {}, {}, {}
    for label, row in labelled(testbeds).items():
        place = testbed(cells, row["hardware"], ranks=row["ranks"], sequence=sequence)
        for size in sizes:
            key = {"testbed": label, "size": size}
            needs[f"{label} {size}"] = cells.get(key, _needed, place, cells.shape(size))
        found = [needs[f"{label} {size}"] for size in sizes]
        reached[label] = max((one["parameters"] for one in found if one is not None and one["fits"]), default=None)
        grown[label] = cells.get({"testbed": label}, _grown, place, cells.shape(base), layers)
    series = series_of(needs, UNITS)
    series.append(Series(name="largest size", unit="10⁹ parameters", points=reached))
    largest_of = {system: {label: cell and cell[system] for label, cell in grown.items()} for system in SYSTEMS}
    for system, points in largest_of.items():
        series.append(Series(name=f"largest, layer by layer, {system}", unit="10⁹ parameters", points=points))
    for system in BASELINES:
        ratio = {label: over(reached[label], value) for label, value in largest_of[system].items()}
        series.append(Series(name=f"largest size over {system}", unit="x", points=ratio))
    return Result(series=tuple(series))


def _needed(place: Testbed, shape: ModelShape) -> dict[str, Any]:
    """What the smallest plan of ProTrain takes."""
    problem = place.problem(shape, place.ranks)
    given, plan = instance(problem), smallest_plan(problem)
    return {
        "parameters": _billions(shape),
        "device": device_bytes(given, plan) / GIB,
        "device memory": problem.device_bytes / GIB,
        "host": host_bytes(given, plan) / GIB,
        "host memory": problem.host_bytes / GIB,
        "fits": int(fits(given, plan)),
    }


def _grown(place: Testbed, shape: ModelShape, most: int) -> dict[str, float]:
    """The largest number of layers that each system holds, in 10⁹ parameters."""
    problems: dict[int, LayoutProblem] = {}

    def holds(system: str) -> Callable[[int], bool]:
        def one(layers: int) -> bool:
            if layers not in problems:
                problems[layers] = place.problem(_of(shape, layers), place.ranks)
            return can_hold(system, problems[layers])

        return one

    return {system: _billions(_of(shape, largest(holds(system), most))) for system in SYSTEMS}


def can_hold(system: str, problem: LayoutProblem) -> bool:
    """Whether the system's smallest plan fits: of the baselines all have everything offloaded and checkpointed."""
    if system == PROTRAIN:
        return fits(instance(problem), smallest_plan(problem))
    run = as_run_by(BASELINES[system].NAME, problem)
    return fits(instance(run), _smallest_offloaded(system, run))


def _smallest_offloaded(system: str, problem: LayoutProblem) -> LayoutPlan:
    given = instance(problem)
    buffers = buffers_of_neighbours(given) if system == "fsdp" else least_buffers(given, ())
    return offloaded(problem, buffers, "checkpoint")


def _of(shape: ModelShape, layers: int) -> ModelShape:
    return msgspec.structs.replace(shape, layers=layers)


def _billions(shape: ModelShape) -> float:
    return shape.parameters() / BILLION
