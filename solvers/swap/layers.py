"""Logical layers: evenly sized groups of operators, the grain of SmartSwap's policy generator (§4.1)."""

from dataclasses import dataclass
from itertools import pairwise

from solvers.ir.graph import Phase
from solvers.ir.swap import SwapProblem


@dataclass
class LogicalLayer:
    """Ops `start`…`stop`−1 of one phase, its estimated time, and what is left of it for transfers in each direction."""

    start: int
    stop: int
    phase: Phase
    time_us: float
    out_left_us: float
    in_left_us: float


def logical_layers(problem: SwapProblem, per_phase: int, estimated: bool) -> list[LogicalLayer]:
    """Divide each run of one phase into at most `per_phase` groups of equal operator count, in operator order.

    `estimated` gives every op the same time, as Eq. (1) does without operator timings: T_iter / N_iter · N_group.
    """
    mean = sum(op.time_us for op in problem.ops) / len(problem.ops)
    layers = []
    for start, stop, phase in _phase_runs(problem):
        count = min(per_phase, stop - start)
        edges = [start + (stop - start) * part // count for part in range(count + 1)]
        for left, right in pairwise(edges):
            time = mean * (right - left) if estimated else float(sum(op.time_us for op in problem.ops[left:right]))
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
