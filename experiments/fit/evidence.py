"""Is `fit` right? Programs near their limits: predicted first, then run in that much simulated memory.

python -m experiments.fit.evidence --allocator exact
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import click
import torch

from experiments.bench.programs import regression
from experiments.commands.show import print_table
from experiments.fit.judge import allocated_peak
from experiments.fit.recording import POLICIES, STEPS, record
from experiments.hardware import read_hardware
from experiments.models import GptShape, Model, Workload
from runtime.blocks.policies import block_policies
from runtime.device import memory_stats, use_sim
from solvers.timeline.segments import Event, SegmentSettings, replay

Allocator = Literal["exact", "caching"]
HARDWARE = "sim-small"
PLENTY_BYTES = 1 << 40
MIB = 1 << 20
FACTORS = (0.9, 0.97, 0.99, 1.01, 1.1)
"""Budgets as shares of the measured limit."""


@dataclass(frozen=True)
class Mlp:
    """Blocks of a linear layer and GELU."""

    width: int
    depth: int
    rows: int
    recomputes: ClassVar[bool] = False

    def build(self, device: torch.device, *, recompute: bool = False) -> Workload:
        """The model on a device, ready to train."""
        return regression(device, self.width, self.depth, self.rows)


class Program(NamedTuple):
    """A model under a technique."""

    name: str
    model: Model
    technique: str


PROGRAMS = (
    Program("GPT 4 × 128, batch 4", GptShape(layers=4, batch=4), "plain"),
    Program("GPT 4 × 128, batch 7", GptShape(layers=4, batch=7), "plain"),
    Program("GPT 4 × 128, batch 12", GptShape(layers=4, batch=12), "plain"),
    Program("GPT 3 × 256, tied", GptShape(layers=3, width=256, batch=5, tied=True), "plain"),
    Program("GPT 6 × 96, context 192", GptShape(layers=6, width=96, context=192, batch=5), "plain"),
    Program("GPT 4 × 128, batch 12", GptShape(layers=4, batch=12), "full"),
    Program("GPT 6 × 96, context 192", GptShape(layers=6, width=96, context=192, batch=5), "full"),
    Program("GPT 4 × 128, batch 7", GptShape(layers=4, batch=7), "selective"),
    Program("MLP 6 × 512, 2048 rows", Mlp(512, 6, 2048), "plain"),
    Program("MLP 5 × 700, 3000 rows", Mlp(700, 5, 3000), "plain"),
    Program("MLP 6 × 512, 2048 rows", Mlp(512, 6, 2048), "full"),
)
"""Fifty-five configurations with `FACTORS`."""


@dataclass(frozen=True)
class Ran:
    """What the device said: whether every request was served, and its peaks."""

    served: bool
    allocated_peak: int
    reserved_peak: int


@dataclass(frozen=True)
class Case:
    """A program in a budget: whether it was predicted to fit and whether it did; reserved bytes, both."""

    program: Program
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


def cases(
    allocator: Allocator, programs: Sequence[Program] = PROGRAMS, factors: Sequence[float] = FACTORS
) -> Iterator[Case]:
    """Predict every program in every budget, and run it there.

    The limit that budgets are shares of is measured, not predicted: with exact bytes the peak of a run in plenty of
    memory, in segments the least memory in which it ran, found by halving.
    """
    for program in programs:
        events = record(program.model, program.name, read_hardware(HARDWARE), program.technique).trace.events
        limit = measured_limit(program, allocator)
        for factor in factors:
            budget = int(limit * factor)
            predicted, reserved = _predicted(events, budget, allocator)
            ran = run(program, budget, allocator)
            yield Case(program, budget, factor, predicted, ran.served, reserved, ran.reserved_peak)


def _predicted(events: Sequence[Event], budget: int, allocator: Allocator) -> tuple[bool, int]:
    if allocator == "exact":
        peak = allocated_peak(events)
        return peak <= budget, peak
    done = replay(events, SegmentSettings(device_bytes=budget))
    return done.refusal is None, done.reserved_peak


def measured_limit(program: Program, allocator: Allocator) -> int:
    """The least memory in which the program ran, to 2 MiB in segments, exactly otherwise."""
    free = run(program, PLENTY_BYTES, allocator)
    if allocator == "exact":
        return free.allocated_peak
    low, high = free.allocated_peak // (2 * MIB), free.reserved_peak // (2 * MIB)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if run(program, middle * 2 * MIB, allocator).served else (middle + 1, high)
    return high * 2 * MIB


def run(program: Program, budget_bytes: int, allocator: Allocator) -> Ran:
    """Build the model and train it for as many steps as were recorded, nobody listening, in that much memory."""
    gc.collect()
    chosen = {} if allocator == "exact" else {"allocator": allocator}
    begin: Callable[..., object] = use_sim
    begin(read_hardware(HARDWARE), capacity_bytes=budget_bytes, races="off", **chosen)
    device = torch.device("sim", 0)
    served = _trained(program, device)
    stats = memory_stats(device)
    gc.collect()
    torch.accelerator.empty_cache()
    return Ran(served, stats.peak_bytes, stats.reserved_peak_bytes)


def _trained(program: Program, device: torch.device) -> bool:
    try:
        workload = program.model.build(device)
        with _executed(program, workload, device):
            for _ in range(STEPS):
                workload.step()
    except torch.OutOfMemoryError:
        return False
    return True


def _executed(program: Program, workload: Workload, device: torch.device) -> AbstractContextManager[None]:
    """The technique as others of this repository execute it: full recomputation by `block_policies`."""
    if program.technique == "plain":
        return nullcontext()
    if program.technique == "full":
        blocks = len(list(_blocks(workload.model)))
        return block_policies(workload.model, ["checkpoint"] * blocks, device)
    return partial(POLICIES[program.technique], workload.model, device)()


def _blocks(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    from runtime.blocks.blocks import find_blocks

    yield from find_blocks(model).values()


@click.command()
@click.option("--allocator", type=click.Choice(["exact", "caching"]), default="exact", show_default=True)
def main(allocator: Allocator) -> None:
    """Print every configuration, how many were right, and the worst error of the reserved peak."""
    found = list(cases(allocator))
    rows = [
        (
            f"{one.program.name}, {one.program.technique}",
            f"{one.budget_bytes / MIB:.2f}",
            f"{one.factor:.2f}",
            "fits" if one.predicted else "no",
            "fits" if one.executed else "no",
            "right" if one.right else "WRONG",
            f"{one.predicted_reserved / MIB:.2f}",
            f"{one.executed_reserved / MIB:.2f}" if one.executed else "-",
        )
        for one in found
    ]
    heads = ("program", "budget (MiB)", "of limit", "predicted", "executed", "", "predicted peak", "executed peak")
    print_table(
        f"allocator {allocator}, device sim ({HARDWARE}); executed: {STEPS} steps, simulated device", heads, rows
    )
    errors = [abs(one.error) for one in found if one.executed]
    right = sum(one.right for one in found)
    print(f"right: {right} of {len(found)}; worst error of the peak: {100 * max(errors):.3f} %")


if __name__ == "__main__":
    main()
