"""Small programs whose small tensors and whose arena hardly fit together, or seemed not to.

Each ran out of memory midway once, or swapped where it need not. `relu` has tensors of some KiB, each of
which holds a segment.
"""

import re

import pytest
import torch

from runtime.device import memory_stats, reset_peak_memory
from runtime.swap import session
from tests.runtime.swap.segments.programs import PROGRAMS
from tests.runtime.swap.segments.trials import ready

TIGHT = [
    ("gpt", True, 29_690_572, 3),
    ("gpt-long", False, 22_356_403, 2),
    ("gpt-long", True, 29_821_501, 3),
    ("growing", True, 52_046_069, 2),
    ("relu", True, 25_038_489, 2),
]
"""Program, whether segments expand, budget, and steps until it had run out of memory and one more."""


@pytest.mark.parametrize(("program", "expandable", "budget", "steps"), TIGHT)
def test_a_tight_budget_is_kept_bit_by_bit(program: str, expandable: bool, budget: int, steps: int) -> None:
    plain = PROGRAMS[program](ready(program, expandable))
    losses = [plain.step().cpu() for _ in range(steps)]
    del plain
    device = ready(program, expandable)
    trained = PROGRAMS[program](device)
    with session(budget, device=device) as swapping:
        for loss in losses:
            before = memory_stats(device).retries
            assert torch.equal(trained.step().cpu(), loss)
            assert memory_stats(device).reserved_bytes <= budget
        assert memory_stats(device).retries == before
    assert swapping.report().counts.passive > 0


@pytest.mark.parametrize(("expandable", "first"), [(False, 16 << 20), (True, 22 << 20)])
def test_the_least_budgets_that_refusals_name_lead_to_one_that_is_enough(expandable: bool, first: int) -> None:
    """Each is a lower bound of segments, so the next one may be refused, too, and names more: never more than plain."""
    plain = PROGRAMS["residual"](device := ready("residual", expandable))
    losses = [plain.step().cpu() for _ in range(3)]
    reserved = memory_stats(device).reserved_peak_bytes
    del plain
    budget, named = 13_865_011, list[int]()
    for _ in range(8):
        device = ready("residual", expandable)
        trained = PROGRAMS["residual"](device)
        try:
            with session(budget, device=device):
                assert all(torch.equal(trained.step().cpu(), loss) for loss in losses)
            break
        except torch.OutOfMemoryError as error:
            found = re.search(r"at least (\d+) bytes", str(error))
            assert found is not None and int(found[1]) > budget
            budget = int(found[1])
            named.append(budget)
    assert memory_stats(device).reserved_peak_bytes <= budget < reserved
    assert named[0] == first


def test_two_pages_are_had_once_it_is_known_what_small_requests_need() -> None:
    """12 MiB are small, so that of 59 MiB a second page can be had; the first iteration had left it to them."""
    budget = 62_285_414
    device = ready("dropout", True)
    trained = PROGRAMS["dropout"](device)
    reset_peak_memory(device)
    with session(budget, device=device) as swapping:
        for _ in range(3):
            trained.step()
        reset_peak_memory(device)
        trained.step()
        stats = memory_stats(device)
        assert swapping.report().stage == "WarmUp"
    assert 44 << 20 <= stats.reserved_peak_bytes <= budget and stats.retries == 0


ROOMY = [("gpt-deep", 62 << 20), ("gpt-wide", 78 << 20)]
"""Program, and what plain training reserves. Of `gpt-deep` no tensor is above 1 MiB: the allocator then keeps segments
with nothing in them. `gpt-wide` has few small tensors until its optimizer's states are there."""


@pytest.mark.parametrize(("program", "budget"), ROOMY)
def test_within_what_plain_training_reserves_nothing_is_swapped(program: str, budget: int) -> None:
    plain = PROGRAMS[program](ready(program, False))
    losses = [plain.step().cpu() for _ in range(7)]
    del plain
    device = ready(program, False)
    trained, swapped = PROGRAMS[program](device), list[int]()
    with session(budget, device=device, watch=lambda summary: swapped.append(summary.counts.swapped_out)):
        for loss in losses:
            assert torch.equal(trained.step().cpu(), loss)
    assert swapped[4:] == [0, 0, 0]
    assert memory_stats(device).reserved_peak_bytes <= budget
