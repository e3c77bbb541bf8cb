"""What the guard costs: nanoseconds for each operator that passes the dispatcher while it is on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch

from runtime.device.native import core

ROUNDS = 15


def guard_ns_per_record(operators: int = 20_000) -> float:
    """Median cost of the guard for one operator with two tensor arguments, measured on the CPU.

    The guard looks at every argument, as it does while something is swapped out. Rounds with and without it alternate,
    so that a noisy machine disturbs both alike; when nothing is out and no step runs, the guard is off and costs 0.
    """
    value, other = torch.ones(1), torch.zeros(1)
    with torch.no_grad():
        differences = [
            _seconds(value, other, operators, on=True) - _seconds(value, other, operators, on=False)
            for _ in range(ROUNDS)
        ]
    return median(differences) / operators * 1e9


def _seconds(value: torch.Tensor, other: torch.Tensor, operators: int, *, on: bool) -> float:
    with _guard(on):
        begin = time.perf_counter()
        for _ in range(operators):
            value.add_(other)
        return time.perf_counter() - begin


@contextmanager
def _guard(on: bool) -> Iterator[None]:
    core.hold_swap_guard(on)
    try:
        yield
    finally:
        core.hold_swap_guard(False)
