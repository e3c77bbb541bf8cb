"""The least host memory with which some plan keeps the device's budget, as a linear model (README, model H)."""

from dataclasses import dataclass
from functools import reduce
from math import ceil, gcd

import numpy as np

from solvers.engines import LinearModel, ModelBuilder, solve
from solvers.ir.solution import Limits
from solvers.swap.evaluate import Instance
from solvers.swap.host import HostRoom

SLACK = 1e-6
"""The relative tolerance of the float engines' integer searches."""
CPSAT_TENSORS = 64
"""Up to here CP-SAT, whose bounds are exact, is as quick as HiGHS."""


@dataclass(frozen=True)
class Cover:
    """A set of tensors that keeps the device's budget with little host memory, and what every such set takes at least.

    `selected` is None where none was found within the limits.
    """

    selected: list[int] | None
    need_bytes: int | None
    least_bytes: int
    engine: str


def least_cover(given: Instance, limits: Limits, engine: str = "auto") -> Cover:
    """Solve model H; what it finds need not be the best plan, but it is one if its host memory is allowed."""
    assert given.host is not None
    room = given.host
    unit = reduce(gcd, [*room.size, *given.size], 0) or 1
    model = _model(given, room, unit)
    if engine == "auto":
        engine = "cpsat" if len(room.size) <= CPSAT_TENSORS else "highs"
    answer = solve(model, limits, engine)
    selected = None
    if answer.x is not None:
        selected = [tensor for tensor in range(len(room.size)) if answer.x[tensor] > 0.5]
    bound = 0.0 if answer.bound is None else answer.bound
    slack = 0.0 if engine == "cpsat" else SLACK * max(1.0, bound)
    least = max(max(given.need, default=0), ceil(bound - slack - 1e-9) * unit)
    need = None if selected is None else room.need_bytes(selected)
    return Cover(selected, need, least if need is None else min(least, need), answer.engine)


def rest_of(limits: Limits, left_s: float) -> Limits:
    """What is left of a call's limits, without its gap: the model is solved to its optimum within them."""
    return Limits(time_s=max(0.01, left_s), work=limits.work, gap=0.0, threads=limits.threads, seed=limits.seed)


def _model(given: Instance, room: HostRoom, unit: int) -> LinearModel:
    """(H1) cover and (H2) host rows over the binaries "tensor i is swapped", in units of `unit` bytes."""
    builder = ModelBuilder("swap-cover")
    swapped = builder.binaries(len(room.size), name="swapped")
    first, last, size = (np.array(values) for values in (given.first, given.last, given.size))
    for op in given.busy:
        absent = np.flatnonzero((first < op) & (op < last))
        values = (size[absent] // unit).astype(np.float64)
        builder.row(swapped[absent], values, lower=-(-given.need[op] // unit), name="cover")
    for together in room.peaks():
        most = sum(room.size[tensor] // unit for tensor in {tensor for group in together for tensor in group})
        held = builder.column(0, most, cost=1.0, integer=True, name="held")
        for group in together:
            values = np.array([room.size[tensor] // unit for tensor in group] + [-1], dtype=np.float64)
            builder.row(np.array([*swapped[group], held]), values, upper=0, name="host")
    return builder.build()
