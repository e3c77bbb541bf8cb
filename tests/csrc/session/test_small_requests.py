"""Requests of at most 1 MiB on segments: what leaves for them is small, too, and without others there is no arena."""

from collections.abc import Callable

import pytest
import torch

from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.device.native import core
from runtime.swap import Session, session

KIB, MIB = 1 << 10, 1 << 20
QUARTER = MIB // 4
EITHER = pytest.mark.parametrize("expandable", [False, True], ids=["segments", "pages"])


def ready(expandable: bool) -> torch.device:
    return use_sim(allocator=CachingAllocator(expandable_segments=expandable)).device


def numbers(size: int, value: float, device: torch.device) -> torch.Tensor:
    return torch.full((size // 4,), value, dtype=torch.float32, device=device)


def right(tensors: list[torch.Tensor]) -> bool:
    """Whether each holds its own number, all over; nothing is asked of the device for that."""
    return all(bool(tensor.cpu().eq(number).all()) for number, tensor in enumerate(tensors))


def out_of(tensors: list[torch.Tensor]) -> int:
    return sum(core.is_out(tensor) for tensor in tensors)


@pytest.mark.parametrize(("expandable", "mebibytes"), [(False, 20), (True, 34)], ids=["segments", "pages"])
def test_small_tensors_leave_for_a_small_request_and_large_ones_stay(expandable: bool, mebibytes: int) -> None:
    """The arena, which is as small as can be by then, has nothing for a request of 256 KiB; that lies elsewhere."""
    device = ready(expandable)
    row = numbers(64 * KIB, 7, device)
    with session(mebibytes * MIB, device=device, boundaries="given") as swapping:
        large = [numbers(2 * MIB, number, device) for number in range(2)]
        small = [row.repeat(4) for _ in range(80)]  # what this operator asks for is known
        for tensor in large:
            tensor.add_(0.0)  # so that they are there
        small += [row.repeat(4) for _ in range(40)]
        assert swapping._engine.pool_bytes > 0
        assert out_of(small) > 40 and out_of(large) == 0
        assert right(large) and all(bool(tensor.cpu().eq(7).all()) for tensor in small)
        stats = memory_stats(device)
    assert stats.ooms == 0 and stats.reserved_peak_bytes <= mebibytes * MIB


@pytest.mark.parametrize(("expandable", "mebibytes"), [(False, 20), (True, 30)], ids=["segments", "pages"])
def test_an_operator_s_many_small_arguments_have_the_arena_s_bytes(expandable: bool, mebibytes: int) -> None:
    """14 MiB at once do not fit beside the least arena: it goes back, and is there again for who needs it."""
    device = ready(expandable)
    with session(mebibytes * MIB, device=device, boundaries="given") as swapping:
        large = [numbers(2 * MIB, number, device) for number in range(2)]
        small = [numbers(QUARTER, number, device) for number in range(56)]
        for _ in range(3):
            torch._foreach_add_(small, 1.0)
            assert out_of(small) == 0 and out_of(large) == 2
            before = memory_stats(device).retries
            for tensor in large:
                tensor.sub_(1.0).add_(1.0)
            assert out_of(large) == 0 and swapping._engine.pool_bytes > 0
            torch._foreach_sub_(small, 1.0)
        assert memory_stats(device).retries == before
        assert right(large) and right(small)
        stats = memory_stats(device)
    assert stats.ooms == 0 and stats.reserved_peak_bytes <= mebibytes * MIB


def chain(device: torch.device, wide: bool = False) -> Callable[[], torch.Tensor]:
    """Results of 256 KiB each, all of them needed backward: 20 MiB; at the end perhaps one of 4 MiB, of small ones."""
    scale = torch.full((1,), 1.001, device=device, requires_grad=True)
    data = torch.linspace(-1, 1, QUARTER // 4).to(device)

    def step() -> torch.Tensor:
        hidden = data
        for _ in range(40):
            hidden = torch.sin(hidden * scale)
        loss = (hidden.repeat(16) if wide else hidden).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        assert scale.grad is not None
        found, scale.grad = torch.stack([loss.detach(), scale.grad[0]]), None
        return found.cpu()

    return step


def in_session(device: torch.device, steps: int, wide: Callable[[int], bool], budget: int) -> tuple[Session, list[int]]:
    """Trains as without a session, to the bit; the bytes of the arena after each step."""
    losses = {large: chain(device, large)() for large in (False, True)}
    torch.accelerator.empty_cache()
    pools = []
    with session(budget, device=device, boundaries="given") as swapping:
        kinds = {large: chain(device, large) for large in (False, True)}
        for number in range(steps):
            assert torch.equal(kinds[wide(number)](), losses[wide(number)])
            pools.append(int(swapping._engine.pool_bytes))
            swapping.step()
        held = swapping.report().reserved_peak_bytes
        assert held is not None and held <= budget
    return swapping, pools


@EITHER
def test_an_arena_that_nobody_has_used_goes_when_small_requests_need_its_room(expandable: bool) -> None:
    """Of 14 MiB fixed segments keep 10 for an arena, so that 4 would be left; the first step needs far more."""
    device = ready(expandable)
    _, pools = in_session(device, steps=4, wide=lambda number: False, budget=14 * MIB)
    assert pools == [0] * 4 and memory_stats(device).ooms == memory_stats(device).retries == 0


@pytest.mark.parametrize(("expandable", "mebibytes"), [(False, 48), (True, 64)], ids=["segments", "pages"])
def test_an_arena_is_taken_again_once_a_large_request_is_known(expandable: bool, mebibytes: int) -> None:
    """The third step has the first large request; before the operator that makes it runs again there is an arena."""
    device = ready(expandable)
    _, pools = in_session(device, steps=5, wide=lambda number: number >= 2, budget=mebibytes * MIB)
    assert pools[1] == 0 and pools[-1] > 0 and memory_stats(device).ooms == memory_stats(device).retries == 0


@pytest.mark.parametrize("mebibytes", [26, 38, 50])
def test_pages_have_room_for_a_first_large_request_after_small_ones(mebibytes: int) -> None:
    """Two steps of small requests fill no budget so that the large one of the third has no page."""
    device = ready(expandable=True)
    in_session(device, steps=4, wide=lambda number: number >= 2, budget=mebibytes * MIB)
    assert memory_stats(device).ooms == 0


def test_a_larger_budget_on_pages_never_leaves_less() -> None:
    """The page by which the allocator may pass its limit is not kept free where less than one would be left beside.

    With 2 MiB of small tensors there, 44 MiB left 24: a page, and less than steps of small requests by turns need.
    """
    device = ready(expandable=True)
    held = numbers(QUARTER, 1, device)
    limits = []
    for mebibytes in range(24, 64):
        with session(mebibytes * MIB, device=device, boundaries="given") as swapping:
            limits.append(swapping._segments.limit_bytes // MIB)
    assert limits == sorted(limits) and limits[44 - 24] == 33 and bool(held.cpu().eq(1).all())
    assert all(limit <= mebibytes for limit, mebibytes in zip(limits, range(24, 64), strict=True))


def test_a_request_is_served_where_tensors_that_nobody_sees_divide_small_segments() -> None:
    """255 KiB and 1 KiB by turns; two of 255 would do for 384, but for the 1 KiB between: nobody looks below 4 KiB.

    So those count that touch each other, or more leave.
    """
    device = ready(expandable=False)
    row = numbers(128 * KIB, 7, device)
    with session(14 * MIB, device=device, boundaries="given") as swapping:
        row.repeat(3)  # 384 KiB: what this operator asks for is known from here on
        many = [numbers(QUARTER, 0, device) for _ in range(48)]
        assert swapping._engine.pool_bytes == 0
        del many
        divided = [numbers(size, 0, device) for _ in range(47) for size in (255 * KIB, KIB)]
        beside = [numbers(QUARTER, 0, device) for _ in range(8)]
        asked = [row.repeat(3) for _ in range(12)]
        assert out_of([*divided, *beside]) * 256 >= 12 * 384 - 1024  # empty segments had room for the rest
        assert all(bool(tensor.cpu().eq(7).all()) for tensor in asked)
        assert all(bool(tensor.cpu().eq(0).all()) for tensor in (*divided, *beside))
        stats = memory_stats(device)
    assert stats.ooms == 0 and stats.reserved_peak_bytes <= 14 * MIB


def test_an_arena_grows_to_what_an_operator_needs_at_once() -> None:
    """Of 16 MiB it takes 10 at first; two of 4 MiB and their product are 12: small tensors leave for that."""
    device = ready(expandable=False)
    with session(16 * MIB, device=device, boundaries="given") as swapping:
        factors = [numbers(4 * MIB, value, device) for value in (2, 3)]
        small = [numbers(QUARTER, 1, device) for _ in range(16)]
        assert swapping._engine.pool_bytes == 10 * MIB
        product = factors[0] * factors[1]
        assert swapping._engine.pool_bytes == 12 * MIB and out_of([*factors, product]) == 0
        assert all(bool(one.cpu().eq(value).all()) for one, value in zip([*factors, product], (2, 3, 6), strict=True))
        assert all(bool(tensor.cpu().eq(1).all()) for tensor in small)
        stats = memory_stats(device)
    assert stats.ooms == stats.retries == 0 and stats.reserved_peak_bytes <= 16 * MIB


def test_what_was_expected_to_be_large_may_be_small() -> None:
    """Some kernels ask for a workspace first, though not when they first run (seen on CUDA: matrix products).

    The large request that such an operator made before would find room in the arena, so this is another one.
    """
    device = ready(expandable=False)
    asks = [0]

    def made(row: torch.Tensor) -> torch.Tensor:
        held = [torch.empty(QUARTER // 4, device=device) for _ in range(asks[0])]
        return torch.empty(MIB, device=device).fill_(len(held))

    with torch.library._scoped_library("bayplan_small", "DEF") as library:
        library.define("made(Tensor row) -> Tensor")
        library.impl("made", made, "PrivateUse1")
        operator = torch.ops.bayplan_small.made
        row = numbers(64 * KIB, 7, device)
        with session(24 * MIB, device=device, boundaries="given") as swapping:
            assert operator(row).cpu().eq(0).all()  # 4 MiB: what it asks for is known from here on
            small = [numbers(QUARTER, number, device) for number in range(60)]
            assert swapping._engine.pool_bytes >= 4 * MIB and out_of(small) > 0
            asks[0] = 12
            assert operator(row).cpu().eq(12).all()
            assert right(small)
        assert memory_stats(device).ooms == 0
