"""A program in so much memory: what was predicted, and what happened."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from experiments.hardware import read_hardware
from runtime.device import CachingAllocator, memory_stats, use_sim

Allocator = Literal["exact", "caching", "expandable"]
HARDWARE = "sim-small"
PLENTY_BYTES = 1 << 40
MIB = 1 << 20
FACTORS = (0.9, 0.97, 0.99, 1.01, 1.1)
"""Budgets as shares of the measured limit."""


@dataclass(frozen=True)
class Ran:
    """What the device said: whether every request was served, and its peaks."""

    served: bool
    allocated_peak: int
    reserved_peak: int


@dataclass(frozen=True)
class Case:
    """A program in a budget: whether it was predicted to fit and whether it did; reserved bytes, both."""

    program: str
    budget_bytes: int
    factor: float
    predicted: bool
    executed: bool
    predicted_reserved: int
    executed_reserved: int

    @property
    def right(self) -> bool:
        """Whether the answer was right."""
        return self.predicted is self.executed

    @property
    def error(self) -> float:
        """(predicted − executed) / executed of the reserved peak."""
        return self.predicted_reserved / self.executed_reserved - 1


Run = Callable[[int], Ran]
"""Builds and trains in so many bytes."""


def on_device(train: Callable[[torch.device], None], budget_bytes: int, allocator: Allocator, *, shapes: bool) -> Ran:
    """Call `train` on the simulated device with that much memory, nobody listening; with `shapes`, without bytes."""
    gc.collect()
    hardware = read_hardware(HARDWARE)
    if allocator == "exact":
        use_sim(hardware, capacity_bytes=budget_bytes, races="off", shapes_only=shapes)
    else:
        rules = CachingAllocator(expandable_segments=allocator == "expandable")
        use_sim(hardware, capacity_bytes=budget_bytes, races="off", shapes_only=shapes, allocator=rules)
    device = torch.device("sim", 0)
    served = _ended_well(train, device)
    stats = memory_stats(device)
    gc.collect()
    torch.accelerator.empty_cache()
    return Ran(served, stats.peak_bytes, stats.reserved_peak_bytes)


def _ended_well(train: Callable[[torch.device], None], device: torch.device) -> bool:
    try:
        train(device)
    except torch.OutOfMemoryError:
        return False
    return True


def measured_limit(run: Run, allocator: Allocator) -> int:
    """The least memory in which something ran, found by halving: to 2 MiB in segments, exactly otherwise."""
    free = run(PLENTY_BYTES)
    if allocator == "exact":
        return free.allocated_peak
    low, high = free.allocated_peak // (2 * MIB), free.reserved_peak // (2 * MIB)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if run(middle * 2 * MIB).served else (middle + 1, high)
    return high * 2 * MIB


Prediction = Callable[[int], tuple[bool, int, Run]]
"""For a budget: whether it fits, the peak then, and how what was predicted is run."""


def judged(name: str, limit_bytes: int, predict: Prediction, factors: Sequence[float] = FACTORS) -> Iterator[Case]:
    """Predict and run in each share of a limit; the prediction comes first."""
    for factor in factors:
        budget = int(limit_bytes * factor)
        predicted, reserved, run = predict(budget)
        ran = run(budget)
        yield Case(name, budget, factor, predicted, ran.served, reserved, ran.reserved_peak)
