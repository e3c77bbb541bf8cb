"""Programs that run plainly or recompute."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch

from experiments.bench.programs import regression
from experiments.fit.evidence.case import (
    FACTORS,
    HARDWARE,
    Allocator,
    Case,
    Ran,
    Run,
    judged,
    measured_limit,
    on_device,
)
from experiments.fit.judge import allocated_peak
from experiments.fit.recording import POLICIES, STEPS, record
from experiments.hardware import read_hardware
from experiments.models import GptShape, Model, Workload
from runtime.blocks.policies import block_policies
from solvers.timeline.segments import Event, SegmentSettings, replay


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


def cases(
    allocator: Allocator, programs: Sequence[Program] = PROGRAMS, factors: Sequence[float] = FACTORS
) -> Iterator[Case]:
    """Predict every program in every budget, and run it there.

    The limit that budgets are shares of is measured, not predicted: with exact bytes the peak of a run in plenty of
    memory, in segments the least memory in which it ran, found by halving.
    """
    for program in programs:
        events = record(program.model, program.name, read_hardware(HARDWARE), POLICIES[program.technique]).trace.events
        run = partial(_run, program, allocator)
        limit = measured_limit(run, allocator)
        predict = partial(_predicted, events, allocator, run)
        yield from judged(f"{program.name}, {program.technique}", limit, predict, factors)


def _predicted(events: Sequence[Event], allocator: Allocator, run: Run, budget: int) -> tuple[bool, int, Run]:
    if allocator == "exact":
        peak = allocated_peak(events)
        return peak <= budget, peak, run
    done = replay(events, SegmentSettings(device_bytes=budget, expandable=allocator == "expandable"))
    return done.refusal is None, done.reserved_peak, run


def _run(program: Program, allocator: Allocator, budget_bytes: int) -> Ran:
    return on_device(partial(_trained, program), budget_bytes, allocator, shapes=False)


def _trained(program: Program, device: torch.device) -> None:
    """Build the model and train it for as many steps as were recorded."""
    workload = program.model.build(device)
    with _executed(program, workload, device):
        for _ in range(STEPS):
            workload.step()


def _executed(program: Program, workload: Workload, device: torch.device) -> AbstractContextManager[object]:
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
