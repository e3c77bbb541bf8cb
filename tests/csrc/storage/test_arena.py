"""Page-locked memory in arenas: exact bytes, best fit, merged, given back, whatever PyTorch's own allocator does."""

import random
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.device import use_sim
from runtime.device.native import core, load
from runtime.swap import ensure_in, release_host_memory, swap_out

GRAIN = 64


def grains(size: int) -> int:
    return max(1, -(-size // GRAIN)) * GRAIN


def pinned() -> int:
    """What the device's own runtime says is page-locked now."""
    return int(load("runtime._sim").counters()["pinned_bytes"])


@pytest.fixture
def rounding() -> Iterator[None]:
    """A device whose own allocator of page-locked memory rounds up and keeps what it gets back, as on CUDA."""
    use_sim(pinned_rounding="power-of-two")
    yield
    core.set_host_arenas(True)
    release_host_memory()
    use_sim()


MOVES = st.tuples(st.integers(1, 2000), st.booleans(), st.integers(0, 39))
"""The size of a block, or which of those that are there returns instead."""


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[bool, int]]:
    """Takes and returns in any order, each block returned at most once."""
    asked: list[tuple[bool, int]] = []
    alive: list[int] = []
    taken = 0
    for size, returns, place in draw(st.lists(MOVES, min_size=1, max_size=40)):
        if alive and returns:
            asked.append((False, alive.pop(place % len(alive))))
        else:
            asked.append((True, size))
            alive.append(taken)
            taken += 1
    return asked


def peak(asked: list[tuple[bool, int]]) -> int:
    sizes = [grains(size) for takes, size in asked if takes]
    held = most = 0
    taken = 0
    for takes, number in asked:
        held += sizes[taken] if takes else -sizes[number]
        taken += takes
        most = max(most, held)
    return most


def packed(asked: list[tuple[bool, int]]) -> int:
    """Best fit in memory without end, byte by byte: the hole that ends the memory only where no other is enough."""
    sizes = [grains(size) for takes, size in asked if takes]
    places: dict[int, int] = {}
    end = taken = 0
    for takes, number in asked:
        if not takes:
            del places[number]
            continue
        size, at, best, last = sizes[taken], None, None, 0
        for offset, block in sorted((offset, sizes[block]) for block, offset in places.items()):
            gap = offset - last
            if gap >= size and (best is None or gap < best):
                at, best = last, gap
            last = offset + block
        places[taken] = last if at is None else at
        end = max(end, places[taken] + size)
        taken += 1
    return end


@settings(deadline=None, max_examples=150)
@given(requests())
def test_a_replay_packs_as_the_plain_rule_does(asked: list[tuple[bool, int]]) -> None:
    """Never below what is held at once, and exactly the plain rule's bytes."""
    assert core.arena_bytes(asked) == packed(asked) >= peak(asked)


def test_what_returns_in_the_reverse_order_needs_no_byte_more() -> None:
    """Activations do: the last that leaves is the first that comes back."""
    source = random.Random(1)
    sizes = [source.randint(1, 1 << 20) for _ in range(300)]
    asked = [(True, size) for size in sizes] + [(False, number) for number in reversed(range(300))]
    assert core.arena_bytes(asked) == peak(asked) == sum(map(grains, sizes))


def test_an_arena_of_the_replayed_size_serves_the_same_requests(device: torch.device) -> None:
    """With no other page-locked memory, in whatever order tensors leave and return."""
    source = random.Random(2)
    tensors = [torch.full((source.randint(16, 4000),), float(n), device=device) for n in range(24)]
    asked: list[tuple[bool, int]] = []
    order: list[int] = []
    out: dict[int, int] = {}
    for _ in range(60):
        place = source.randrange(24)
        if place in out:
            asked.append((False, out.pop(place)))
        else:
            out[place] = sum(takes for takes, _ in asked)
            asked.append((True, tensors[place].nbytes))
        order.append(place)
    need = core.arena_bytes(asked)
    core.reserve_host(need, device)
    before = core.host_stats()
    assert (before.held_bytes, pinned()) == (need, need)
    there = set(range(24))
    for place in order:
        if place in there:
            swap_out(tensors[place])
        else:
            ensure_in(tensors[place])
        there ^= {place}
    after = core.host_stats()
    assert (after.allocations, after.held_bytes) == (before.allocations, need)
    for number, tensor in enumerate(tensors):
        assert torch.equal(tensor.cpu(), torch.full(tensor.shape, float(number)))
    release_host_memory()
    assert (core.host_stats().held_bytes, pinned()) == (0, 0)


def test_without_arenas_the_host_gives_twice_the_bytes_and_keeps_them(rounding: None, device: torch.device) -> None:
    """What PyTorch's allocator of page-locked memory does on CUDA, and why there are arenas."""
    size = (1 << 20) + 4096
    tensor = torch.ones(size // 4, device=device)
    use_sim(pinned_rounding="power-of-two")
    core.set_host_arenas(False)
    swap_out(tensor)
    assert (core.host_stats().held_bytes, pinned()) == (1 << 21, 1 << 21)
    ensure_in(tensor)
    core.trim_host()
    assert pinned() == 0  # only because the pool asks for it
    core.set_host_arenas(True)
    swap_out(tensor)
    assert (core.host_stats().held_bytes, pinned()) == (size, size)
    ensure_in(tensor)
    release_host_memory()
    assert pinned() == 0


def test_a_device_that_registers_nothing_is_served_by_pytorch_s_allocator_and_says_so(device: torch.device) -> None:
    """As on CUDA where its runtime is not found: more memory, the same bits, and plans that count it."""
    tensor = torch.arange(5000.0, device=device)
    core.set_host_registrar(None)
    try:
        assert not core.host_is_exact(device)
        swap_out(tensor)
        assert core.host_stats().held_bytes == 32768
        assert core.host_stats().fallback == "the device registers no memory of the process"
        assert torch.equal(tensor.cpu(), torch.arange(5000.0))
        release_host_memory()
    finally:
        core.set_host_registrar(load("runtime._sim").host_registrar)
    assert core.host_is_exact(device)


def test_the_device_s_own_allocator_keeps_what_the_program_frees(rounding: None) -> None:
    block = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
    assert block.is_pinned()
    assert pinned() == 8192
    del block
    assert pinned() == 8192
    again = torch.empty(8000, dtype=torch.uint8, pin_memory=True)
    assert pinned() == 8192
    del again


def test_a_reservation_stays_within_the_limit(device: torch.device) -> None:
    core.set_host_limit(10_000)
    core.reserve_host(50_000, device)
    assert core.host_stats().held_bytes == 10_000
    core.set_host_limit(None)
    core.reserve_host(50_000, device)
    assert core.host_stats().held_bytes == 50_000  # the smaller arena, idle, made way


def test_memory_that_copies_still_use_is_written_behind_them(device: torch.device) -> None:
    """A block that came back is on the in lane still when the next tensor leaves into its bytes: races are raised."""
    first, second = torch.arange(4096.0, device=device), torch.arange(4096.0, device=device) + 1
    core.reserve_host(first.nbytes, device)
    for _ in range(4):
        swap_out(first)
        ensure_in(first)
        swap_out(second)
        ensure_in(second)
    assert core.host_stats().held_bytes == first.nbytes
    assert torch.equal(second.cpu(), torch.arange(4096.0) + 1)
    assert torch.equal(first.cpu(), torch.arange(4096.0))


def test_a_block_that_ends_in_an_arena_s_last_grain_lies_within_what_is_page_locked(device: torch.device) -> None:
    """An arena of 4,000 bytes is one of 63 grains, and serves a tensor of as many."""
    core.reserve_host(4000, device)
    assert (core.host_stats().held_bytes, pinned()) == (4000, 63 * GRAIN)
    tensor = torch.arange(63.0 * GRAIN / 4, device=device)
    swap_out(tensor)
    assert core.host_stats().held_bytes == 4000
    assert torch.equal(tensor.cpu(), torch.arange(63.0 * GRAIN / 4))
