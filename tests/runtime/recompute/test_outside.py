"""What programs do with blocks' tensors outside of the blocks: joint plans keep their budget there, to the byte."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch

from experiments.recompute.models import Trainee
from runtime.device import limited_memory
from runtime.recompute.course import LAST, Happened, NodeShape, TapeShape
from runtime.recompute.footprint import CallFacts, mark_of
from runtime.recompute.outside import AFTER, Use, uses_of
from runtime.recompute.policy import ON_DEMAND
from solvers.ir.errors import InfeasibleBudget
from tests.accelerators import prepared
from tests.runtime.recompute.holding import KEPT, PROGRAMS
from tests.runtime.recompute.stories import Device
from tests.runtime.recompute.training import QUICK as QUICK
from tests.runtime.recompute.training import Loop, Outcome, trained

STEPS = 3
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def device() -> torch.device:
    return prepared("sim")


@pytest.fixture
def ending_empty() -> Iterator[None]:
    """What a test's program keeps is gone with it."""
    yield
    KEPT.clear()


def within(device: torch.device, stack: ExitStack, budget: int, loop: Loop) -> Loop:
    """From the second step on the device has the budget and no byte more."""

    def run(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        if index == 1:
            stack.enter_context(limited_memory(device, budget))
        return loop(trainee, optimizer, index)

    return run


def kept_within(device: torch.device, name: str, budget: int) -> Outcome:
    """The program planned, with that much memory."""
    make, loop = PROGRAMS[name]
    with ExitStack() as stack:
        limited = within(device, stack, budget, loop)
        return trained(device, make, budget=budget, solver="greedy-joint", loop=limited, steps=STEPS)


def least_of(device: torch.device, name: str) -> int:
    """The least budget that a refusal names; nothing of the refused training is left."""
    make, loop = PROGRAMS[name]
    with pytest.raises(InfeasibleBudget, match=r"takes at least \d+ for what was measured") as refused:
        trained(device, make, budget=200_000, solver="greedy-joint", loop=loop, steps=2)
    assert refused.value.least_budget_bytes is not None
    return refused.value.least_budget_bytes


def require_kept(kept: Outcome, free: Outcome, budget: int) -> None:
    """Same bits, and as reckoned; nothing of the training is left."""
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.peak_bytes <= budget, "by an earlier plan, too, where the losses kept make another one"
    assert report.plan_peak_bytes <= report.predicted_peak_bytes <= budget
    assert (report.replanned, report.refused, report.postponed) == (0, 0, 0)


@pytest.mark.usefixtures("ending_empty")
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_budgets_are_kept_where_the_program_reads_and_holds_what_blocks_made(device: torch.device, name: str) -> None:
    make, loop = PROGRAMS[name]
    free = trained(device, make, loop=loop, steps=STEPS)
    least = least_of(device, name) + 512 * STEPS  # the loop keeps its losses
    for budget in (least, (least + max(free.peaks)) // 2):
        require_kept(kept_within(device, name, budget), free, budget)


def test_reads_and_ends_are_told_by_place() -> None:
    """Two blocks of one operator each: the first one's result is read in the second block, and dies after the loss."""
    log, shape = Device(), TapeShape((NodeShape((), ((0, -1),), runs_again=True, communicates=False),), (512,))
    for call in range(2):
        log.note(-1, Happened.MARK, mark_of(call, backward=False))
        log.note(call, Happened.NODE, 0)
        if call == 1:
            log.note(0, Happened.READ, 0)
        log.take(512)
        log.note(call, Happened.MADE, 0)
        log.note(call, Happened.END)
    log.note(-1, Happened.ELSE, 0)
    log.note(0, Happened.READ, 0)
    log.note(-1, Happened.ELSE, 1)
    log.take(-512)
    log.note(-1, Happened.ELSE, 0, died=())
    log.events.append((0, Happened.DIED, 0, log.now, log.now))
    log.note(-1, Happened.MARK, mark_of(1, backward=True))
    log.note(-1, Happened.MARK, LAST)
    facts = [CallFacts(call, call - 1 if call else None, shape, ON_DEMAND) for call in range(2)]
    uses = uses_of(log.events, facts)
    use = uses.of_values(0, [(0, 0)])
    assert use == Use(frozenset({(0, 1, 0), (0, 2, 1)}), (0, 2, 1))
    assert uses.of_values(1, [(0, 0)]).until == AFTER and uses.stays((1, 0, 0)) and not uses.stays((0, 0, 0))
    assert [told.where for told in uses.forward if told.gone] == [(0, 2, 2)]
