"""Plans on a device whose allocator holds segments: these keep the budget too, or the report says what they take."""

import gc
import logging
from collections.abc import Callable

import pytest
import torch

from experiments.bench.offload.model import RaceShape
from experiments.models.workload import Workload
from runtime.device import CachingAllocator, memory_stats, reset_peak_memory, use_sim
from runtime.recompute import RecomputeReport, plan
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.solution import Limits
from tests.accelerators import prepare_sim

REFUSED = prepare_sim()
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))
SHAPE = RaceShape(layers=6, width=512, heads=8, context=512, batch=16)
STEPS = 16
"""Enough for a plan, two corrections and what is made for room, three passes each."""
Between = Callable[[Workload, torch.device], None]


def planned(
    solver: str, share: float | int, *, expandable: bool, between: Between = lambda work, device: None
) -> RecomputeReport:
    """By shapes, so that segments of 20 MiB are small beside the model; something else may run `between` steps."""
    segments = CachingAllocator(expandable_segments=expandable)
    device = use_sim(races="off", allocator=segments, shapes_only=True).device
    work = SHAPE.build(device)
    for _ in range(2):
        work.step()
    budget = share if isinstance(share, int) else int(share * memory_stats(device).peak_bytes)
    del work
    gc.collect()
    torch.accelerator.empty_cache()
    reset_peak_memory(device)
    work = SHAPE.build(device)
    with plan(work.model, budget=budget, solver=solver, limits=Limits(work=0.05)) as session:
        work.step()
        for _ in range(STEPS - 1):
            between(work, device)
            work.step()
        return session.report()


def least_of(solver: str) -> int:
    """The least budget that a refusal names; its frames, which hold the model, are gone by then."""
    try:
        planned(solver, 0.1, expandable=False)
    except InfeasibleBudget as refused:
        assert refused.least_budget_bytes is not None
        return refused.least_budget_bytes
    raise AssertionError("a tenth of the peak sufficed")


@pytest.mark.parametrize(
    ("solver", "share", "expandable"), [("joint", 0.75, False), ("joint", 0.5, True), ("heu", 0.6, True)]
)
def test_segments_keep_the_budget_too(solver: str, share: float, expandable: bool) -> None:
    """The first plan's took 6 to 20 % more; what a plan for less promises is what it takes, and room is used."""
    report = planned(solver, share, expandable=expandable)
    assert 0 < report.peak_bytes <= report.reserved_peak_bytes <= report.budget_bytes
    assert report.replanned > 0 and report.reserved_peak_bytes > 0.93 * report.budget_bytes
    assert abs(report.predicted_peak_bytes - report.peak_bytes) < 0.01 * report.peak_bytes


def evaluated(work: Workload, device: torch.device) -> None:
    """A batch four times as large without gradients."""
    with torch.no_grad():
        forward(work, device, 4 * SHAPE.batch)


def tried_out(work: Workload, device: torch.device) -> None:
    """A batch twice as large whose loss nobody uses."""
    forward(work, device, 2 * SHAPE.batch)


def forward(work: Workload, device: torch.device, batch: int) -> None:
    text = torch.zeros(batch, SHAPE.context, dtype=torch.long, device=device)
    work.model(text, text)


@pytest.mark.parametrize("between", [evaluated, tried_out])
def test_an_evaluation_between_passes_spoils_no_judgement(between: Between) -> None:
    """It takes more than the budget, in bytes and in segments; the plan is the one that it is without."""
    alone = planned("heu", 0.6, expandable=False)
    report = planned("heu", 0.6, expandable=False, between=between)
    assert report.peak_bytes > report.budget_bytes or report.reserved_peak_bytes > report.budget_bytes
    assert alone.reserved_peak_bytes <= alone.budget_bytes
    told = [(one.exposed_us, one.predicted_peak_bytes, one.replanned, one.sought) for one in (alone, report)]
    assert told[0] == told[1]


def test_where_no_plan_takes_fewer_segments_training_goes_on_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The least budget in bytes: nothing is left to segments."""
    least = least_of("heu")
    with caplog.at_level(logging.WARNING, logger="bayplan.recompute"):
        report = planned("heu", least, expandable=False)
    assert report.peak_bytes <= report.budget_bytes < report.reserved_peak_bytes
    (said,) = [one for one in (record.getMessage() for record in caplog.records) if "none was found" in one]
    assert "segments took" in said and "raise the budget, or set PYTORCH_ALLOC_CONF" in said
