"""Joint rows of a program: what `runtime.recompute.plan` does with it, run by shapes, is what it does with bytes."""

import pytest
import torch
from torch import nn

from experiments.fit import executed
from experiments.fit.answer import Row
from experiments.fit.joint import FIRST
from experiments.fit.judge import Asked, Budget
from experiments.fit.program import program_rows, recorded_program
from experiments.hardware import read_hardware
from solvers.ir.solution import Limits
from tests.experiments.fit import test_sessions

pytestmark = pytest.mark.usefixtures("plain_sim")
SIM = read_hardware("sim-small")
ASKED = Asked(SIM, ("joint",), "greedy-swap", Limits())
MIB = 1 << 20
CHAIN, ENDS = test_sessions.PROGRAM, f"{test_sessions.__name__}:four_batches"


class Bare(nn.Module):
    """A forward of its own and no module that a session could cut."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 64))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """One product."""
        return torch.relu(rows @ self.weight)


def bare(device: torch.device) -> tuple[object, object, object]:
    """Its training."""
    model = Bare().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.ones(512, 64, device=device)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(rows).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def row_of(factory: str, budget_mib: int) -> Row:
    return program_rows(factory, ASKED, recorded_program(factory, SIM), Budget(budget_mib * MIB))[0]


def test_the_row_is_what_a_session_does_with_bytes_in_the_same_memory() -> None:
    """And in the least memory that it names, which refuses nothing."""
    row = row_of(CHAIN, 52)
    real = executed.trained(CHAIN, ASKED, False, False, FIRST, 52 * MIB, 52 * MIB)
    assert row.fits and real.kept
    assert (row.allocated_bytes, row.reserved_bytes) == (real.allocated_bytes, real.reserved_bytes)
    assert (row.step_us, row.host_bytes, row.retries) == (real.step_us, real.host_bytes, 0)
    least = row.least_reserved_bytes
    assert least is not None and row.least_allocated_bytes is not None
    assert row.least_allocated_bytes <= least < 52 * MIB
    assert executed.trained(CHAIN, ASKED, False, True, FIRST, least, least).kept


def test_of_a_budget_that_is_refused_the_least_that_is_kept_is_told() -> None:
    row = row_of(CHAIN, 16)
    assert (row.fits, row.fits_allocated) == (False, False)
    assert row.least_reserved_bytes == row.plan_budget_bytes and row.step_us is not None
    assert row.margin_reserved_bytes == 16 * MIB - (row.least_reserved_bytes or 0) < 0
    assert row.remarks[0].startswith("refused within 16777216 bytes (16.00 MiB): ")
    assert row.remarks[1].startswith("peaks, host memory and step are those within ")


def test_what_no_session_can_plan_says_so() -> None:
    row = row_of(f"{__name__}:bare", 2)
    assert row.fits is None and row.reason is not None
    assert row.reason.startswith("no session can plan it: the model Bare has no repeated blocks")


def test_a_program_that_ends_is_judged_by_the_steps_that_ran() -> None:
    row = row_of(ENDS, 8)
    assert row.fits and row.step_how is not None and row.step_how.endswith("of 4 steps")
    assert row.remarks[-1].startswith("the program ended after 4 steps by itself (StopIteration)")
