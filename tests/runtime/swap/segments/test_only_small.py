"""Programs whose requests are all of at most 1 MiB have all of a budget, and a larger one that comes late runs."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runtime.device import clock, memory_stats
from runtime.device.native import why_missing
from runtime.swap import session
from tests.runtime.swap.segments.programs import PROGRAMS
from tests.runtime.swap.segments.trials import ready
from tests.soaking import in_soak

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
EITHER = pytest.mark.parametrize("expandable", [in_soak(False), True], ids=["segments", "pages"])
WIDTH, ROWS, LAYERS = 64, 1024, 60
STEPS, LARGE = 6, 4
"""In all, and the one with a large request."""


def narrow(device: torch.device) -> Callable[[bool], torch.Tensor]:
    """Activations of 256 KiB each; a step may end with one of 4 MiB, made of two tensors of some KiB."""
    torch.manual_seed(5)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    data, row = torch.randn(ROWS, WIDTH).to(device), torch.randn(1, WIDTH).to(device)

    def step(large: bool) -> torch.Tensor:
        loss: torch.Tensor = model(data).square().mean()
        if large:
            scale: torch.Tensor = next(model.parameters()).sum()
            loss = loss + (row.expand(16 * ROWS, WIDTH) * scale).sum() * 1e-6
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


@EITHER
def test_a_first_large_request_in_a_later_step_finds_room(expandable: bool) -> None:
    """Small tensors have had the room of a page since the second step; it ended in a refusal before."""
    device = ready("narrow", expandable)
    step = narrow(device)
    losses = [step(number == LARGE).cpu() for number in range(STEPS)]
    budget = int(0.75 * memory_stats(device).peak_bytes)
    del step
    device = ready("narrow", expandable)
    step = narrow(device)
    with session(budget, device=device) as swapping:
        for number, loss in enumerate(losses):
            assert torch.equal(step(number == LARGE).cpu(), loss)
            if number == LARGE - 1:
                assert memory_stats(device).peak_bytes > 0.8 * budget
        assert (swapping.report().reserved_peak_bytes or 0) <= budget


def test_pages_for_small_requests_are_filled() -> None:
    """Room for a page of 20 MiB stayed free: 15 of 45 MiB were used, and a step took 3.25 times the plain one."""
    device = ready("gpt-deep", expandable=True)
    trained, budget = PROGRAMS["gpt-deep"](device), 47_869_824
    with session(budget, device=device):
        for _ in range(4):
            trained.step()
        assert budget - (4 << 20) < memory_stats(device).peak_bytes <= budget


def test_a_budget_of_one_page_and_one_small_segment_is_kept() -> None:
    """22.04 MiB on pages: it was refused, as no page was left to large requests."""
    plain = PROGRAMS["residual"](ready("residual", expandable=True))
    losses = [plain.step().cpu() for _ in range(3)]
    del plain
    device = ready("residual", expandable=True)
    trained, budget = PROGRAMS["residual"](device), 23_108_352
    with session(budget, device=device):
        assert all(torch.equal(trained.step().cpu(), loss) for loss in losses)
        assert memory_stats(device).reserved_peak_bytes <= budget and memory_stats(device).ooms == 0


@EITHER
def test_what_the_program_cached_in_a_pause_is_given_back(expandable: bool) -> None:
    """All requests are small, and the allocator kept more than the budget when the session went on."""
    device = ready("narrow", expandable)
    step, budget = narrow(device), int(27.3 * 2**20)
    with session(budget, device=device) as swapping:
        for _ in range(3):
            step(False)
        swapping.pause()
        step(False)
        assert memory_stats(device).reserved_bytes > budget
        swapping.resume()
        for _ in range(3):
            step(False)
            assert memory_stats(device).reserved_bytes <= budget
        assert swapping.report().within_budget


def test_marks_tell_what_the_host_takes_though_it_was_far_ahead() -> None:
    """The first iteration swaps so much that the device lags behind by several: a tenth of the true time was told."""
    device = ready("narrow", expandable=True)
    step, now = narrow(device), clock(device)
    for _ in range(3):
        step(False)
    began = now()
    step(False)
    plain_us = (now() - began) / 1000
    peak = memory_stats(device).peak_bytes
    del step
    device = ready("narrow", expandable=True)
    step = narrow(device)
    with session(int(0.75 * peak), device=device) as swapping:
        for _ in range(14):
            step(False)
        cost = swapping.report().cost
    assert cost is not None and cost.how == "estimated"
    assert 0.8 * plain_us < cost.without_us < 1.25 * plain_us
