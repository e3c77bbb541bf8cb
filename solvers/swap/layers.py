"""Logical layers: evenly sized groups of operators, the grain of SmartSwap's policy generator (§4.1)."""

from dataclasses import dataclass
from itertools import pairwise

from solvers.ir.graph import Phase
from solvers.ir.swap import SwapProblem
from solvers.swap.launches import unswapped_us


@dataclass
class LogicalLayer:
    """Ops `start`…`stop`−1 of one phase, its estimated time, and what is left of it for transfers in each direction.

    Times are in the ticks of the problem's link.
    """

    start: int
    stop: int
    phase: Phase
    time: float
    out_left: float
    in_left: float


def logical_layers(problem: SwapProblem, per_phase: int, estimated: bool) -> list[LogicalLayer]:
    """Divide each run of one phase into at most `per_phase` groups of equal operator count, in operator order.

    A layer's time is what it takes in a step without swaps, launches included; `estimated` gives every op the same
    time, as Eq. (1) does without operator timings: T_iter / N_iter · N_group.
    """
    ends = [end * problem.link.ticks for end in unswapped_us(problem.ops)]
    mean = ends[-1] / len(problem.ops)
    layers = []
    for start, stop, phase in _phase_runs(problem):
        count = min(per_phase, stop - start)
        edges = [start + (stop - start) * part // count for part in range(count + 1)]
        for left, right in pairwise(edges):
            time = mean * (right - left) if estimated else float(ends[right] - ends[left])
            layers.append(LogicalLayer(left, right, phase, time, time, time))
    return layers


def layer_of_op(layers: list[LogicalLayer]) -> list[int]:
    """The index of the logical layer of each op."""
    return [number for number, layer in enumerate(layers) for _ in range(layer.start, layer.stop)]


def _phase_runs(problem: SwapProblem) -> list[tuple[int, int, Phase]]:
    runs: list[tuple[int, int, Phase]] = []
    for index, op in enumerate(problem.ops):
        if runs and runs[-1][2] == op.phase:
            runs[-1] = (runs[-1][0], index + 1, op.phase)
        else:
            runs.append((index, index + 1, op.phase))
    return runs
