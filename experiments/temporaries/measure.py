"""Runs programs on device sim with real bytes and gathers what each kernel took beside its results."""

import gc
from collections import defaultdict
from collections.abc import Callable, Mapping

import torch

from experiments.temporaries.fit import Call
from runtime.device import use_sim
from runtime.device.native import load
from solvers.ir.errors import InvalidInput

CAPACITY_BYTES = 64 << 30
"""More than any of these programs needs."""
Program = Callable[[torch.device], None]
"""Trains for a step or two, or runs some kernels."""


def measured(programs: Mapping[str, Program]) -> dict[str, list[Call]]:
    """The calls of all kernels that the programs ran, by signature.

    Raises `InvalidInput` where device sim has no bytes to measure.
    """
    sim = use_sim(capacity_bytes=CAPACITY_BYTES)
    if sim.shapes_only:
        raise InvalidInput("kernels are measured with real bytes: leave shapes_only out")
    native = load("runtime._sim")
    native.take_measured_temporaries()
    native.measure_temporaries(True)
    calls: dict[str, list[Call]] = defaultdict(list)
    try:
        for program in programs.values():
            program(sim.device)
            gc.collect()
            for signature, sizes, took in native.take_measured_temporaries():
                calls[signature].append(Call(tuple(sizes), took))
    finally:
        native.measure_temporaries(False)
        native.take_measured_temporaries()
    return dict(calls)
