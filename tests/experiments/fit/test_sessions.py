"""Whether a program fits a session is judged by training in one; what is told is what another run finds."""

import gc
from collections.abc import Iterator

import pytest
import torch

from experiments.fit.judge import Asked, Budget
from experiments.fit.program import program_rows, recorded_program
from experiments.hardware import read_hardware
from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.swap import session
from solvers.ir.solution import Limits
from tests.experiments.commands.test_fit import SHAPE, rows, told
from tests.runtime.swap.segments.programs import perceptron, regression

pytestmark = pytest.mark.usefixtures("plain_sim")
SIM = read_hardware("sim-small")
PROGRAM = f"{__name__}:chain"
MIB = 1 << 20
Parts = tuple[object, object, object]


def chain(device: torch.device) -> Parts:
    """Activations of 2 MiB, eight layers of them."""
    made = regression(perceptron([256] * 9), 2048, 256)(device)
    return made.model, made.optimizer, made.step


def wide(device: torch.device) -> Parts:
    """Parameters of 16 MiB, of which little is used at once."""
    made = regression(perceptron([1024] * 5), 16, 1024)(device)
    return made.model, made.optimizer, made.step


def trains(budget: int, expandable: bool) -> bool:
    """Whether it is built and trains for six steps in a session, with numbers, and holds no more."""
    gc.collect()
    device = use_sim(capacity_bytes=1 << 33, allocator=CachingAllocator(expandable_segments=expandable)).device
    step = regression(perceptron([256] * 9), 2048, 256)(device).step
    if memory_stats(device).reserved_peak_bytes > budget:
        return False
    try:
        with session(budget, device=device):
            for _ in range(6):
                step()
            return memory_stats(device).reserved_peak_bytes <= budget
    except torch.OutOfMemoryError:
        return False


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    gc.collect()


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "pages"])
def test_the_least_budget_trains_and_the_one_below_it_does_not(expandable: bool) -> None:
    recording = recorded_program(PROGRAM, SIM)
    asked = Asked(SIM, ("plain", "session"), "greedy-swap", Limits())
    plain, large = program_rows(PROGRAM, asked, recording, Budget(44 * MIB, expandable))
    assert (plain.fits, large.fits) == (False, True)
    assert large.reserved_bytes is not None and large.reserved_bytes <= 44 * MIB < (plain.reserved_bytes or 0)
    assert plain.step_us is not None and large.step_us is not None and plain.step_us < large.step_us
    assert "by shapes alone" in large.how and large.host_bytes is not None and large.least_host_bytes is not None
    assert 0 < large.least_host_bytes <= large.host_bytes
    _, small = program_rows(PROGRAM, asked, recording, Budget(8 * MIB, expandable))
    assert small.fits is False and small.remarks[0].startswith("refused: ")
    for row in (large, small):
        assert row.least_reserved_bytes is not None and row.least_reserved_bytes < 44 * MIB
        assert trains(row.least_reserved_bytes, expandable)
        (refused,) = [int(said.partition("steps; ")[2].partition(" ")[0]) for said in row.remarks if "tried" in said]
        assert refused < row.least_reserved_bytes and not trains(refused, expandable)


def test_a_model_that_is_larger_than_the_budget_before_the_session_begins_does_not_fit() -> None:
    asked = Asked(SIM, ("session",), "greedy-swap", Limits())
    (row,) = program_rows(f"{__name__}:wide", asked, recorded_program(f"{__name__}:wide", SIM), Budget(12 * MIB))
    assert row.fits is False
    assert any("let the session begin before that" in said for said in row.remarks)


def test_of_a_shape_nothing_is_trained() -> None:
    row = rows(told(*SHAPE, "--technique", "session", hardware="h200"))["session"]
    assert row["fits"] is None and "give MODULE:FACTORY" in row["reason"]
