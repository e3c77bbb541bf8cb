"""Sizes, pools, best fit, splitting, merging: each rule of PyTorch's allocator in a sequence small enough to read.

Sources are functions of c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11 to 2.13. The same sequences run on CUDA where
there is one.
"""

from collections.abc import Sequence

import pytest
import torch

from runtime.device.native import why_missing
from tests.csrc.sim.caching.sequences import FREE_OF_CHARGE, MIB, Bench, Empty, Free, Malloc, Record, State, Step, run

ON_SIM = pytest.param(
    Bench("sim"),
    id="sim",
    marks=pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim"))),
)
ON_CUDA = pytest.param(
    Bench("cuda"),
    id="cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
)


@pytest.fixture(params=[ON_SIM, ON_CUDA])
def bench(request: pytest.FixtureRequest) -> Bench:
    found: Bench = request.param
    return found


def last(steps: Sequence[Step], bench: Bench) -> State:
    return run(steps, bench)[-1]


@pytest.mark.parametrize(
    ("requested", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 512, 10 * MIB + 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (21 * MIB - 512, 21 * MIB - 512, 22 * MIB),
        (21 * MIB, 22 * MIB, 22 * MIB),
    ],
)
def test_a_request_gets_a_block_and_a_segment(bench: Bench, requested: int, block: int, segment: int) -> None:
    """[round_size, get_allocation_size] What is left of a large segment is the block's unless it is over 1 MiB."""
    state = last([Malloc(requested)], bench)
    assert (state.requested_bytes, state.allocated_bytes) == (requested, block)
    assert (state.reserved_bytes, state.segments) == (segment, 1)


def test_the_small_pool_splits_from_512_bytes_on_and_the_large_one_above_1_mib(bench: Bench) -> None:
    """[should_split]"""
    small = last([Malloc(MIB), Malloc(MIB - 512)], bench)
    assert small.runs == ((0, True, ((MIB, "active_allocated"), (MIB - 512, "active_allocated"), (512, "inactive"))),)
    first, second = 10 * MIB - 512, 9 * MIB + 512
    states = run([Malloc(first), Malloc(second), Malloc(MIB + 512)], bench)
    assert states[1].runs == ((0, False, ((first, "active_allocated"), (second + MIB, "active_allocated"))),)
    assert states[2].segments == 2


def test_small_and_large_requests_do_not_share_segments(bench: Bench) -> None:
    """[get_pool] 18 MiB of the large pool are free, and a small request takes a segment of its own."""
    state = last([Malloc(2 * MIB), Malloc(512)], bench)
    assert state.reserved_bytes == 22 * MIB
    assert [small for _, small, _ in state.runs] == [False, True]


def test_streams_do_not_share_blocks(bench: Bench) -> None:
    """[BlockComparatorSize] A freed block is the stream's that asked for it."""
    states = run([Malloc(4 * MIB), Free(0), Malloc(4 * MIB, 1), Malloc(4 * MIB)], bench)
    assert [state.reserved_bytes // MIB for state in states] == [20, 20, 40, 40]


def test_the_smallest_block_that_fits_is_taken(bench: Bench) -> None:
    """[get_free_block] Of free blocks of 24 and 12 MiB, 11 MiB take the second."""
    states = run([Malloc(24 * MIB), Malloc(12 * MIB), Free(0), Free(1), Malloc(11 * MIB)], bench)
    assert states[-1].runs == ((0, False, ((12 * MIB, "active_allocated"),)), (0, False, ((24 * MIB, "inactive"),)))


def test_free_neighbours_become_one(bench: Bench) -> None:
    """[try_merge_blocks] The middle of three is freed last: then 20 MiB are whole again."""
    steps: list[Step] = [Malloc(4 * MIB), Malloc(4 * MIB), Malloc(4 * MIB), Free(0), Free(2), Free(1)]
    states = run(steps, bench)
    assert [len(blocks) for _, _, blocks in states[3].runs] == [4]
    assert states[4].runs == (
        (0, False, ((4 * MIB, "inactive"), (4 * MIB, "active_allocated"), (12 * MIB, "inactive"))),
    )
    assert states[5].runs == ((0, False, ((20 * MIB, "inactive"),)),)
    assert [state.inactive_split_bytes // MIB for state in states] == [16, 12, 8, 12, 16, 0]


def test_emptying_the_cache_gives_back_whole_segments_only(bench: Bench) -> None:
    """[release_cached_blocks]"""
    states = run([Malloc(4 * MIB), Malloc(30 * MIB), Malloc(512), Free(1), Free(2), Empty(), Free(0), Empty()], bench)
    assert [state.reserved_bytes // MIB for state in states[4:]] == [52, 20, 20, 0]


def test_a_block_on_loan_is_active_until_a_request_finds_its_event(bench: Bench) -> None:
    """[free, process_events] Nobody works: the next request, on whatever stream, gives the block back."""
    steps: list[Step] = [Malloc(4 * MIB), Record(0, 1), Free(0), Malloc(512, 2)]
    states = run(steps, bench)
    assert [(s.allocated_bytes, s.active_bytes) for s in states[1:3]] == [(4 * MIB, 4 * MIB), (0, 4 * MIB)]
    assert (4 * MIB, "active_pending_free") in states[2].runs[0][2]
    assert states[3].runs[0] == (0, False, ((20 * MIB, "inactive"),))
    assert (states[3].active_bytes, states[3].requested_bytes) == (512, 512)


def test_the_own_stream_needs_no_loan(bench: Bench) -> None:
    """[recordStream]"""
    assert last([Malloc(4 * MIB), Record(0, 0), Free(0)], bench).active_bytes == 0


def test_the_limit_counts_segments(bench: Bench) -> None:
    """[alloc_block, setMemoryFraction] Of 30 MiB 20 are reserved: 12 are refused, 10 and the rest of 2 are had."""
    limited = Bench(bench.device, limit_bytes=30 * MIB)
    states = run([Malloc(9 * MIB), Malloc(9 * MIB), Malloc(12 * MIB), Malloc(10 * MIB), Malloc(2 * MIB)], limited)
    assert [(s.reserved_bytes // MIB, s.ooms, s.retries) for s in states] == [
        (20, 0, 0),
        (20, 0, 0),
        (20, 1, 1),
        (30, 1, 1),
        (30, 1, 1),
    ]


def test_full_it_gives_back_what_is_whole_and_tries_again(bench: Bench) -> None:
    """[malloc] 24 MiB are cached for stream 0, of 30 allowed: stream 1 gets its 20 after one retry."""
    limited = Bench(bench.device, limit_bytes=30 * MIB)
    state = last([Malloc(24 * MIB), Free(0), Malloc(4 * MIB, 1)], limited)
    assert (state.reserved_bytes, state.retries, state.ooms) == (20 * MIB, 1, 0)


def test_fragments_are_refused_although_their_bytes_would_do(bench: Bench) -> None:
    """[malloc] What mode exact never shows: 16 of 40 MiB are free in two halves, and 12 are refused."""
    limited = Bench(bench.device, limit_bytes=40 * MIB)
    steps = [Malloc(6 * MIB), Malloc(6 * MIB), Malloc(8 * MIB), Malloc(6 * MIB), Malloc(6 * MIB), Malloc(8 * MIB)]
    states = run([*steps, Free(2), Free(5), Malloc(12 * MIB)], limited)
    assert (states[-1].reserved_bytes, states[-1].allocated_bytes) == (40 * MIB, 24 * MIB)
    assert (states[-1].retries, states[-1].ooms) == (1, 1)


def test_defaults_are_pytorchs() -> None:
    assert (FREE_OF_CHARGE.expandable_segments, FREE_OF_CHARGE.max_split_size_bytes) == (False, None)
