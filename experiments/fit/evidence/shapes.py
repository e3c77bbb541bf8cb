"""Stages of shapes: the requests of the computed step, made one by one of the simulated device's allocator.

What is tested is the answer, from the computed step on; that a program of this shape asks for the same is not.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec
import torch

from experiments.fit.answer import Technique
from experiments.fit.evidence.case import FACTORS, Allocator, Case, Ran, Run, judged, measured_limit, on_device
from experiments.fit.evidence.swaps import LIMITS, asked
from experiments.fit.joint import FIRST, JointSearch, joint_problem_of
from experiments.fit.judge import Budget
from experiments.fit.shapes import technique_trace
from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir.errors import InvalidInput
from solvers.timeline.segments import Event, replay
from solvers.workload import Parallelism

CLUSTER = "lynx-nvlink-8"


class StageCase(NamedTuple):
    """A stage of a shape under a technique."""

    shape: str
    tensor: int
    pipeline: int
    microbatch: int
    attention: Literal["unfused", "flash"]
    technique: Technique

    @property
    def name(self) -> str:
        """What it is."""
        cut = f"{self.tensor} × {self.pipeline}, microbatch {self.microbatch}"
        return f"{self.shape}, {cut}, {self.attention}, {self.technique}"

    @property
    def stage(self) -> Stage:
        """Its first stage."""
        shape = msgspec.structs.replace(read_shape(self.shape), attention=self.attention)
        cut = Parallelism(
            tensor=self.tensor, pipeline=self.pipeline, microbatch=self.microbatch, microbatches=self.pipeline
        )
        return Stage(shape, cut, read_hardware(CLUSTER))


STAGES = (
    StageCase("gpt-300m", 1, 1, 3, "unfused", "plain"),
    StageCase("gpt-300m", 1, 1, 5, "unfused", "swap"),
    StageCase("gpt-1.3b", 1, 1, 2, "unfused", "full"),
    StageCase("gpt-1.3b", 2, 4, 2, "unfused", "plain"),
    StageCase("llama-2-7b", 4, 1, 1, "unfused", "selective"),
    StageCase("llama-2-7b", 8, 1, 1, "flash", "plain"),
    StageCase("llama-2-7b", 8, 1, 2, "flash", "swap"),
    StageCase("gpt-300m", 1, 1, 4, "unfused", "joint"),
    StageCase("llama-2-7b", 8, 1, 2, "flash", "joint"),
)


def stage_cases(
    allocator: Allocator, stages: Sequence[StageCase] = STAGES, factors: Sequence[float] = FACTORS
) -> Iterator[Case]:
    """Predict every stage in every budget, and make its requests there."""
    for case in stages:
        smallest = _events(case, Budget(1, allocator == "expandable"))[1]
        limit = measured_limit(partial(_run, smallest, allocator), allocator)
        yield from judged(case.name, limit, partial(_predicted, case, allocator), factors)


def _events(case: StageCase, budget: Budget) -> tuple[bool, Sequence[Event]]:
    """Whether it fits, and the requests with which."""
    planned = case.technique in ("swap", "joint")
    trace = technique_trace(case.stage, "plain" if planned else case.technique)
    if isinstance(trace, str):
        raise InvalidInput(f"{case.name}: {trace}")
    if not planned:
        return replay(trace.events, budget.settings).refusal is None, trace.events
    if case.technique == "joint":
        search = JointSearch(trace, joint_problem_of(trace, case.stage.cluster, budget.bytes), budget, LIMITS)
        fitting = search.found(FIRST)
        assert search.smallest is not None, "the least budget has a plan"
        return fitting is not None, (fitting or search.smallest).events
    found = asked(trace, case.stage.cluster, budget)
    return found.fitting is not None, (found.fitting or found.smallest).events


def _predicted(case: StageCase, allocator: Allocator, budget_bytes: int) -> tuple[bool, int, Run]:
    budget = Budget(budget_bytes, allocator == "expandable")
    fits, events = _events(case, budget)
    return fits, replay(events, budget.settings).reserved_peak, partial(_run, events, allocator)


def _run(events: Sequence[Event], allocator: Allocator, budget_bytes: int) -> Ran:
    return on_device(partial(_asked, events), budget_bytes, allocator, shapes=True)


def _asked(events: Sequence[Event], device: torch.device) -> None:
    """Each request as a tensor of so many bytes, each free as its end."""
    live: dict[int, torch.Tensor] = {}
    for event in events:
        if event.bytes:
            live[event.block] = torch.empty(event.bytes, dtype=torch.uint8, device=device)
        else:
            del live[event.block]
