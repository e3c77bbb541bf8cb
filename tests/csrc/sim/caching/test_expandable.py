"""Expandable segments: pages where they are needed, and back where they are not.

Sources: Note [Expandable Segments] and functions of c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11 to 2.13.
"""

import dataclasses

import pytest
import torch

from runtime.device import CachingAllocator
from tests.csrc.sim.caching.sequences import MIB, Bench, Empty, Free, Malloc, State, Step, run
from tests.csrc.sim.caching.test_rules import ON_CUDA, ON_SIM

EXPANDABLE = CachingAllocator(expandable_segments=True, segment_alloc_us=0, segment_free_us=0)


@pytest.fixture(params=[ON_SIM, ON_CUDA])
def bench(request: pytest.FixtureRequest) -> Bench:
    device = request.param.device
    return Bench(device, EXPANDABLE)


def reserved(states: list[State]) -> list[int]:
    return [state.reserved_bytes // MIB for state in states]


def test_pages_are_mapped_as_they_are_needed(bench: Bench) -> None:
    """[map_block] Pages of 2 MiB in the small pool, of 20 MiB in the large one; no segment is counted."""
    states = run([Malloc(MIB), Malloc(MIB), Malloc(1), Malloc(15 * MIB), Malloc(10 * MIB), Malloc(30 * MIB)], bench)
    assert reserved(states) == [2, 2, 4, 24, 44, 64]
    assert states[-1].segments == states[-1].inactive_split_bytes == 0


def test_a_request_takes_what_is_free_before_the_unmapped_part(bench: Bench) -> None:
    """[find_expandable_block] 5 of 20 MiB are free at the end: 22 need one page more, not two."""
    states = run([Malloc(15 * MIB), Malloc(22 * MIB)], bench)
    assert reserved(states) == [20, 40]
    assert states[-1].runs == (
        (0, False, ((15 * MIB, "active_allocated"), (22 * MIB, "active_allocated"), (3 * MIB, "inactive"))),
    )


def test_large_blocks_are_split_to_the_granule(bench: Bench) -> None:
    """[should_split] An ordinary segment would keep the rest of half a MiB with the block."""
    state = run([Malloc(20 * MIB - MIB // 2)], bench)[-1]
    assert state.runs == ((0, False, ((20 * MIB - MIB // 2, "active_allocated"), (MIB // 2, "inactive"))),)


def test_a_hole_is_preferred_to_the_growing_end(bench: Bench) -> None:
    """[get_free_block] The end counts with all that it could grow to, so that a larger hole fits better."""
    steps: list[Step] = [Malloc(12 * MIB), Malloc(4 * MIB), Free(0), Malloc(3 * MIB)]
    state = run(steps, bench)[-1]
    assert [size // MIB for size, state in state.runs[0][2] if state == "active_allocated"] == [3, 4]
    assert state.runs[0][2][0] == (3 * MIB, "active_allocated")


def test_free_pages_go_back_and_their_addresses_are_used_again(bench: Bench) -> None:
    """[unmap_block] 45 MiB, 10, 5 in three pages: of the first, freed, two pages are whole."""
    steps: list[Step] = [Malloc(45 * MIB), Malloc(10 * MIB), Free(0), Empty(), Malloc(44 * MIB)]
    states = run(steps, bench)
    assert reserved(states) == [60, 60, 60, 20, 60]
    assert states[3].runs == (
        (0, False, ((5 * MIB, "inactive"), (10 * MIB, "active_allocated"), (5 * MIB, "inactive"))),
    )
    assert states[4].runs[0][2][0] == (44 * MIB, "active_allocated")


@pytest.mark.parametrize(("expandable", "ooms", "reserved_mib"), [(False, 1, 40), (True, 0, 60)])
def test_what_fragments_in_segments_fits_in_pages(bench: Bench, expandable: bool, ooms: int, reserved_mib: int) -> None:
    """[malloc] 10 MiB hold a segment of 40; of 80 that are allowed, 50 more are had only where 20 of its pages move."""
    options = dataclasses.replace(EXPANDABLE, expandable_segments=expandable)
    limited = Bench(bench.device, options, limit_bytes=80 * MIB)
    state = run([Malloc(40 * MIB), Free(0), Malloc(10 * MIB), Malloc(50 * MIB)], limited)[-1]
    assert (state.ooms, state.retries, state.reserved_bytes // MIB) == (ooms, 1, reserved_mib)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the capacity of a GPU cannot be set")
def test_what_was_mapped_before_the_device_was_full_stays_cached() -> None:
    """[try_allocate_expandable_block] The first gap gets its page, the second does not."""
    full = Bench("sim", EXPANDABLE, capacity_bytes=60 * MIB)
    states = run([Malloc(20 * MIB), Malloc(20 * MIB, 1), Malloc(25 * MIB)], full)
    assert [(s.reserved_bytes // MIB, s.ooms, s.retries) for s in states] == [(20, 0, 0), (40, 0, 0), (40, 1, 1)]
