"""Programs that swap: the plan that `fit` finds, run from the first step on in that much memory.

The executor's own forecast of segments is left out (`HeldSteps`), since it has the predictor's code: the device alone
decides what is served.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from unittest.mock import patch

import torch

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
from experiments.fit.evidence.programs import Mlp
from experiments.fit.judge import Budget
from experiments.fit.recording import STEPS, record
from experiments.fit.swap_plans import FIRST, Found, Planned, Search
from experiments.fit.trace import Trace
from experiments.hardware import read_hardware
from experiments.models import GptShape, Model
from runtime.execute.held import HeldSteps
from runtime.swap import SwapExecutor
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.solution import Limits
from solvers.ir.swap import SwapProblem
from solvers.planner import make_problem
from solvers.swap.evaluate import least_budget
from solvers.timeline.segments import replay

SWAPPED: tuple[tuple[str, Model], ...] = (
    ("GPT 4 × 128, batch 12", GptShape(layers=4, batch=12)),
    ("GPT 6 × 96, context 192", GptShape(layers=6, width=96, context=192, batch=5)),
    ("GPT 3 × 256, tied", GptShape(layers=3, width=256, batch=5, tied=True)),
    ("MLP 6 × 512, 2048 rows", Mlp(512, 6, 2048)),
)
LIMITS = Limits(time_s=2.0)


def swap_cases(
    allocator: Allocator, programs: Sequence[tuple[str, Model]] = SWAPPED, factors: Sequence[float] = FACTORS
) -> Iterator[Case]:
    """Ask for a plan in every budget, and run it there; where the answer is no, the plan with the fewest segments.

    Budgets are shares of the least memory in which the quick heuristic's plan for the fewest bytes ran.
    """
    hardware = read_hardware(HARDWARE)
    for name, model in programs:
        trace = record(model, name, hardware).trace
        smallest = asked(trace, hardware, Budget(1, allocator == "expandable")).smallest
        limit = measured_limit(partial(_run, model, trace.graph, smallest, allocator), allocator)
        predict = partial(_predicted, trace, hardware, model, allocator)
        yield from judged(f"{name}, swap", limit, predict, factors)


def asked(trace: Trace, hardware: Hardware, budget: Budget) -> Found:
    """What `fit` finds in a budget."""
    problem = make_problem("swap", trace.graph, hardware, budget.bytes)
    assert isinstance(problem, SwapProblem)
    found = Search(trace, hardware, budget, least_budget(problem)).found(FIRST, LIMITS)
    assert found is not None, "the closed form of the least memory has a plan"
    return found


def _predicted(
    trace: Trace, hardware: Hardware, model: Model, allocator: Allocator, budget_bytes: int
) -> tuple[bool, int, Run]:
    budget = Budget(budget_bytes, allocator == "expandable")
    found = asked(trace, hardware, budget)
    planned = found.fitting or found.smallest
    run = partial(_run, model, trace.graph, planned, allocator)
    return found.fitting is not None, replay(planned.events, budget.settings).reserved_peak, run


def _run(model: Model, graph: OpGraph, planned: Planned, allocator: Allocator, budget_bytes: int) -> Ran:
    return on_device(partial(_trained, model, graph, planned), budget_bytes, allocator, shapes=False)


def _trained(model: Model, graph: OpGraph, planned: Planned, device: torch.device) -> None:
    """Build the model and train it under the plan; a step that the executor refuses counts as not served."""
    workload = model.build(device)
    with patch.object(HeldSteps, "require_segments"), SwapExecutor(planned.schedule, graph, device, trace=False) as run:
        try:
            for _ in range(STEPS):
                run.run(workload.step)
        except InvalidInput as error:
            raise torch.OutOfMemoryError(str(error)) from error
