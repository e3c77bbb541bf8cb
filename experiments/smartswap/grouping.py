"""Figure 4: how evenly groups of operators divide a pass's time, and how far Eq. (1) is from each group's."""

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import msgspec

from experiments.models.gpt import GptShape
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from experiments.smartswap.profiles import gpt_profile, llama_graph
from solvers.ir.graph import OpGraph, Phase
from solvers.ir.hardware import Hardware
from solvers.swap import make_swap_problem
from solvers.swap.layers import logical_layers
from solvers.workload import Parallelism

PASSES: tuple[Phase, ...] = ("forward", "backward")
CURVES = {"CV": "cv", "error of Eq. 1": "error", "error with each pass's own mean": "own"}
DIGITS = 9
"""What is kept of a figure that may be zero but for the rounding of floats."""
WHOLE, PARTS, SINGLE = "a layer or more", "less than a layer", "single operators"


def figure_4(
    cells: Cells, *, profile: Mapping[str, int], device: str, model: str, cluster: str, groups: Sequence[int]
) -> Result:
    """Three curves for each graph and pass over the number of groups, in %.

    Graphs: `gpt`, profiled on the simulated device of that hardware, and `llama`, by formulas on one device of
    `cluster`. Labels say the number of groups and whether each holds a layer or more.
    """
    shape, llama = msgspec.convert(profile, GptShape), cells.shape(model)
    small, large = cells.hardware(device), cells.hardware(cluster)
    cells.total(2)
    found = {
        "gpt": cells.get({"graph": "gpt"}, lambda: _spread(gpt_profile(shape, small), small, shape.layers, groups)),
        "llama": cells.get(
            {"graph": "llama"},
            lambda: _spread(
                llama_graph(llama, large, llama.layers, Parallelism(microbatch=1)), large, llama.layers, groups
            ),
        ),
    }
    return Result(series=tuple(_series(found)))


def _spread(graph: OpGraph, hardware: Hardware, layers: int, groups: Sequence[int]) -> dict[str, Any]:
    """By pass and label: the figures of the pass divided into a number of groups, and into its single operators."""
    spread: dict[str, Any] = {}
    for phase in PASSES:
        count = sum(op.phase == phase for op in graph.ops)
        labels = {f"{number}, {WHOLE if number <= layers else PARTS}": number for number in groups if number < count}
        labels[SINGLE] = count
        spread[phase] = {label: group_figures(graph, hardware, phase, number) for label, number in labels.items()}
    return spread


def group_figures(graph: OpGraph, hardware: Hardware, phase: Phase, groups: int) -> dict[str, float]:
    """Of one pass divided into logical layers, in %: coefficient of variation of their times, mean relative errors.

    `error` is that of Eq. (1), `own` that of the pass's own mean operator time in place of the iteration's; both over
    the groups that take time: an operator of less than half a microsecond behind a busy device may take none.
    """
    problem = make_swap_problem(graph, hardware)
    guessed, timed = (logical_layers(problem, groups, estimated=estimated) for estimated in (True, False))
    pairs = [(guess.time, true.time) for guess, true in zip(guessed, timed, strict=True) if true.phase == phase]
    guesses, times = [guess for guess, _ in pairs], [time for _, time in pairs]
    scale = sum(times) / sum(guesses)
    return {
        "cv": 100 * pstdev(times) / fmean(times),
        "error": 100 * fmean(abs(guess - time) / time for guess, time in pairs if time),
        "own": round(100 * fmean(abs(guess * scale - time) / time for guess, time in pairs if time), DIGITS),
    }


def _series(found: Mapping[str, dict[str, Any] | None]) -> list[Series]:
    return [
        Series(name=f"{curve}, {graph} {phase}", unit="%", points=_points(cell, phase, key))
        for graph, cell in found.items()
        for phase in PASSES
        for curve, key in CURVES.items()
    ]


def _points(cell: dict[str, Any] | None, phase: Phase, key: str) -> dict[str, Value]:
    if cell is None:
        return {SINGLE: None}
    return {label: float(figures[key]) for label, figures in cell[phase].items()}
