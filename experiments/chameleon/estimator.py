"""How far the paper's closed formulas are from the time that they estimate (Figure 9, §IV-C, §V-C), in our model."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from experiments.chameleon.entries import trained_in
from experiments.chameleon.retention import bare_problem
from experiments.reproduction import Cells, Result, Series
from solvers.replan.estimate.paper import f3_us, f7_us
from solvers.replan.estimate.pipeline import pipeline_us
from solvers.replan.estimate.rerouting import rerouted_us
from solvers.replan.make import Trained, even_layers


def estimator(
    cells: Cells,
    *,
    model: str,
    hardware: str,
    grids: Sequence[Sequence[int]],
    microbatches: Sequence[int],
    gb_per_s: float,
    bare: bool,
) -> Result:
    """Labels `DxP m M` (pipelines, depth, microbatches of each), `… stage S` and `… two in stage S` for failures there.

    `bare`: uniform layers, no messages, as the formulas assume.
    """
    cells.total(len(grids) * len(microbatches))
    found: dict[str, Mapping[str, Any] | None] = {}
    for data, depth in grids:
        for count in microbatches:
            trained = trained_in(cells, model, hardware, gb_per_s)
            label = f"{data}x{depth} m {count}"
            found[label] = cells.get({"pipelines": label}, _errors, trained, data, depth, count, bare)
    names = {"F3": "no failure", "F6": "one failure", "F7": "two failures in a stage"}
    return Result(series=tuple(_series(f"error of {name}, {what}", name, found) for name, what in names.items()))


def _errors(trained: Trained, data: int, depth: int, count: int, bare: bool) -> dict[str, dict[str, float]]:
    """Relative errors in percent of the closed formulas, beside exact recurrence and event simulation."""
    problem = trained.problem(depth=depth, data=data, microbatches=data * count)
    problem = bare_problem(problem) if bare else problem
    layers = even_layers(problem.layers, depth)
    found = {"F3": {"": _error(f3_us(problem, layers, count), pipeline_us(problem, layers, count))}, "F6": {}, "F7": {}}
    for stage in range(depth):
        for name, lost in (("F6", 1), ("F7", 2)):
            if lost < data:
                failed = [lost if other == stage else 0 for other in range(depth)]
                exact = rerouted_us(problem, layers, count, failed, data)
                found[name][f" stage {stage}"] = _error(f7_us(problem, layers, count, failed, data), exact)
    return found


def _error(formula: Fraction, exact_us: int) -> float:
    return float(100 * (formula / exact_us - 1))


def _series(title: str, name: str, found: Mapping[str, Mapping[str, Any] | None]) -> Series:
    points: dict[str, float | str | None] = {}
    for label, cell in found.items():
        points |= {label: None} if cell is None else {f"{label}{at}": error for at, error in cell[name].items()}
    return Series(name=title, unit="%", points=points)
