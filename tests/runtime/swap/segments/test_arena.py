"""A session takes what its budget leaves at once, so that the allocator cuts blocks from one range of addresses."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from runtime.device import CachingAllocator, SimDevice, memory_stats, use_sim
from runtime.device.native import why_missing
from runtime.swap import session
from runtime.swap.report import IterationSummary
from tests.runtime.swap.segments.larger import SHAPES_ONLY
from tests.soaking import in_soak

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
MIB = 1 << 20
ROWS = (3, 5, 2, 7, 4, 9, 6, 8)
"""MiB of each layer's result: no two alike, so that no segment serves for the next."""
STEPS = 20
EITHER = pytest.mark.parametrize("expandable", [False, in_soak(True)], ids=["segments", "pages"])


def mixed(device: torch.device) -> Callable[[], torch.Tensor]:
    """Layers of results of many sizes, whose states are made in the first step, among its gradients."""
    torch.manual_seed(3)
    scales = [torch.full((rows, MIB // 4), 1.001, device=device, requires_grad=True) for rows in (1, 2)]
    weights = [torch.ones(rows, device=device, requires_grad=True) for rows in ROWS]
    optimizer = torch.optim.AdamW([*scales, *weights])
    data = torch.linspace(-1, 1, MIB // 4).to(device)

    def step() -> torch.Tensor:
        hidden = torch.sin(data * scales[0].sum(0) * scales[1].sum(0))
        loss = hidden.square().mean()
        for weight in weights:
            wide = torch.tanh(torch.sin(weight[:, None] * hidden))
            loss = loss + wide.square().mean()
            hidden = hidden + wide.mean(0)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@dataclass(frozen=True)
class Driver:
    """How often the driver was asked for memory, and given some back."""

    taken: int
    returned: int


def driver(device: torch.device) -> Driver:
    stats = torch.accelerator.memory_stats(device)
    return Driver(int(stats["num_device_alloc"]), int(stats["num_device_free"]))


def ready(expandable: bool) -> SimDevice:
    return use_sim(allocator=CachingAllocator(expandable_segments=expandable))


@pytest.fixture(scope="module")
def plain() -> tuple[list[torch.Tensor], int]:
    """Losses and the peak of bytes in use without a budget."""
    device = ready(expandable=False).device
    step = mixed(device)
    return [step().cpu() for _ in range(STEPS)], memory_stats(device).peak_bytes


@EITHER
def test_the_driver_is_asked_no_more_once_policies_are_kept(
    plain: tuple[list[torch.Tensor], int], expandable: bool
) -> None:
    losses, peak_bytes = plain
    device = ready(expandable).device
    step, budget = mixed(device), int(0.6 * peak_bytes)
    seen: list[tuple[IterationSummary, Driver]] = []
    with session(budget, device=device, watch=lambda ended: seen.append((ended, driver(device)))) as swapping:
        assert all(torch.equal(step().cpu(), loss) for loss in losses)
        held = swapping.report().reserved_peak_bytes
    assert held is not None and held <= budget
    assert [ended.counts.retries for ended, _ in seen[-4:]] == [0] * 4
    assert seen[-1][1] == seen[-4][1]
    assert sum(ended.counts.swapped_out for ended, _ in seen[-4:]) > 0


def largest_free_bytes(sim: SimDevice) -> tuple[int, int]:
    """Free bytes of the large pool, and of them those of the largest range."""
    free = [
        block["size"]
        for segment in sim.snapshot()["segments"]
        if segment["segment_type"] == "large"
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
    return sum(free), max(free)


@EITHER
def test_states_of_the_first_step_do_not_divide_what_is_free(
    plain: tuple[list[torch.Tensor], int], expandable: bool
) -> None:
    """They are made among gradients; before the second step they are moved to the arena's edge."""
    sim = ready(expandable)
    step = mixed(sim.device)
    with session(int(0.75 * plain[1]), device=sim.device):
        for _ in range(STEPS // 2):
            step()
        free, largest = largest_free_bytes(sim)
    assert largest > 0.8 * free  # a state of 2 MiB may have moved since, to make room


def test_blocks_that_are_never_cut_get_segments_as_they_come(plain: tuple[list[torch.Tensor], int]) -> None:
    device = use_sim(allocator=CachingAllocator(max_split_size_bytes=32 * MIB)).device
    step = mixed(device)
    with session(2 * plain[1], device=device) as swapping:
        losses = [step().cpu() for _ in range(2)]
        assert swapping._engine.pool_bytes == 0
    assert all(torch.equal(mine, right) for mine, right in zip(losses, plain[0], strict=False))


def test_another_stream_finds_room_for_segments_of_its_own(plain: tuple[list[torch.Tensor], int]) -> None:
    """What it asks for only the driver can give, and the arena holds all that the budget allows."""
    device = ready(expandable=False).device
    step, side = mixed(device), torch.Stream(device)
    with session(int(1.5 * plain[1]), device=device) as swapping:
        losses = [step().cpu() for _ in range(3)]
        assert swapping._engine.pool_bytes > 0
        with side:
            batch = torch.ones(4 * MIB, device=device) * 2
        side.synchronize()
        assert swapping._engine.pool_bytes == 0
        losses += [step().cpu() for _ in range(3)]
        assert batch.sum().item() == 8 * MIB
    assert all(torch.equal(mine, right) for mine, right in zip(losses, plain[0], strict=False))
    assert memory_stats(device).ooms == 0


def test_a_budget_that_holds_no_operator_is_refused_with_the_least_that_would() -> None:
    """Two tensors of 24 MiB and their sum at once are 72; the sentence tells what the session saw to be needed."""
    device = ready(expandable=False).device
    with pytest.raises(torch.OutOfMemoryError, match="in segments") as refused, session(60 * MIB, device=device):
        one, other = (torch.ones(6 * MIB, device=device) for _ in range(2))
        one + other
    told = re.search(r"at least (\d+) bytes", str(refused.value))
    assert told is not None and 60 * MIB < int(told[1]) <= 80 * MIB


def test_the_least_budget_counts_the_request_that_was_refused() -> None:
    """An argument of 16 MiB and a result of 64, larger than all before: at least 80, whatever leaves."""
    device = ready(expandable=False).device
    with pytest.raises(torch.OutOfMemoryError, match="in segments") as refused, session(60 * MIB, device=device):
        one = torch.ones(4 * MIB, device=device)
        torch.cat([one, one, one, one])
    told = re.search(r"at least (\d+) bytes", str(refused.value))
    assert told is not None and 80 * MIB <= int(told[1]) <= 88 * MIB


def test_an_emptied_cache_takes_the_arena_along_and_it_is_made_anew(plain: tuple[list[torch.Tensor], int]) -> None:
    """`empty_cache()` gives free pages of an arena back, and nothing says so; the session sees it when it is asked."""
    device = ready(expandable=True).device
    step, budget = mixed(device), int(0.6 * plain[1])
    losses = []
    with session(budget, device=device) as swapping:
        for _ in range(6):
            losses.append(step().cpu())
            torch.accelerator.empty_cache()
        held = swapping.report().reserved_peak_bytes
    assert all(torch.equal(mine, right) for mine, right in zip(losses, plain[0], strict=False))
    assert held is not None and held <= budget and memory_stats(device).ooms == 0


def test_small_requests_beyond_all_before_find_room(plain: tuple[list[torch.Tensor], int]) -> None:
    """They have segments of their own; what the arena leaves for them is used up long before 40 MiB."""
    device = ready(expandable=False).device
    step, budget = mixed(device), plain[1] + 20 * MIB
    with session(budget, device=device) as swapping:
        losses = [step().cpu() for _ in range(2)]
        before = swapping._engine.pool_bytes
        small = [torch.full((MIB // 8,), float(number), device=device) for number in range(80)]
        losses += [step().cpu() for _ in range(2)]
        assert 0 < swapping._engine.pool_bytes < before
        held = swapping.report().reserved_peak_bytes
    assert all(torch.equal(mine, right) for mine, right in zip(losses, plain[0], strict=False))
    assert [tensor[-1].item() for tensor in small] == list(range(80))
    assert held is not None and held <= budget and memory_stats(device).ooms == 0


def test_of_large_pages_beside_the_arena_there_are_no_more_than_two() -> None:
    """With more a tensor of 128 MiB does not fit: what stays lies side by side, not on pages of its own."""
    device = use_sim(
        capacity_bytes=64 << 30, allocator=CachingAllocator(expandable_segments=True), shapes_only=True
    ).device
    trained = SHAPES_ONLY["mlp-even"](device)
    with session(2477 * MIB, device=device) as swapping:
        for _ in range(3):
            trained.step()
        small = swapping._engine.small_peak_bytes
        assert memory_stats(device).reserved_bytes <= swapping._engine.pool_bytes + small + 40 * MIB
