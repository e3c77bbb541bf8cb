"""Random sequences of requests, frees, loans and work on three streams: the extension against a model of the rules."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.device import CachingAllocator
from runtime.device.native import why_missing
from tests.csrc.sim.caching.model import predict
from tests.csrc.sim.caching.sequences import (
    FREE_OF_CHARGE,
    MIB,
    Bench,
    Empty,
    Free,
    Malloc,
    Record,
    State,
    Step,
    Work,
    run,
)

needs_sim = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
STREAMS = st.integers(0, 2)
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 8).map(lambda n: n * MIB // 4),
    st.integers(MIB - 600, MIB + 600),
    st.integers(1, 40).map(lambda n: n * MIB),
    st.integers(9 * MIB, 11 * MIB),
    st.integers(MIB, 60 * MIB),
)
REQUESTS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Malloc, SIZES, STREAMS), st.builds(Malloc, SIZES, st.just(0)), st.builds(Free, st.integers(0, 30))
)
EVERYTHING: st.SearchStrategy[Step] = st.one_of(
    REQUESTS,
    REQUESTS,
    REQUESTS,
    st.builds(Record, st.integers(0, 30), STREAMS),
    st.builds(Work, STREAMS),
    st.just(Empty()),
)
ALLOCATORS = st.builds(
    CachingAllocator,
    expandable_segments=st.booleans(),
    max_split_size_bytes=st.sampled_from([None, None, 21 * MIB, 32 * MIB]),
    max_non_split_rounding_bytes=st.sampled_from([20 * MIB, 36 * MIB]),
    segment_alloc_us=st.just(0.0),
    segment_free_us=st.just(0.0),
)
CAPACITIES = st.integers(20, 300).map(lambda n: n * MIB)


@st.composite
def benches(draw: st.DrawFn) -> Bench:
    """The limit is at most the capacity, as a fraction is."""
    capacity = draw(CAPACITIES)
    limit = draw(st.one_of(st.none(), CAPACITIES.map(lambda size: min(size, capacity))))
    return Bench("sim", draw(ALLOCATORS), capacity, limit)


@needs_sim
@settings(max_examples=200)
@given(st.lists(EVERYTHING, min_size=5, max_size=60), benches())
def test_the_extension_keeps_the_rules(steps: list[Step], bench: Bench) -> None:
    """Every number and every block after every step."""
    for step, mine, right in zip(steps, run(steps, bench), predict(steps, bench), strict=True):
        assert mine == right, step


@needs_sim
@settings(max_examples=50)
@given(st.lists(REQUESTS, min_size=5, max_size=60), st.booleans())
def test_a_sequence_takes_the_same_memory_in_every_run(steps: list[Step], expandable: bool) -> None:
    bench = Bench(allocator=dataclasses.replace(FREE_OF_CHARGE, expandable_segments=expandable))
    assert run(steps, bench) == run(steps, bench)


def numbers(state: State) -> tuple[int, ...]:
    return state[:-1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@settings(max_examples=50)
@given(st.lists(REQUESTS, min_size=5, max_size=60), st.booleans())
def test_cuda_keeps_the_same_rules(steps: list[Step], expandable: bool) -> None:
    """Numbers only: where the driver puts segments is its own business, and decides among blocks of equal size."""
    bench = Bench("cuda", dataclasses.replace(FREE_OF_CHARGE, expandable_segments=expandable))
    right = predict(steps, dataclasses.replace(bench, device="sim", capacity_bytes=torch.cuda.mem_get_info()[1]))
    assert [numbers(state) for state in run(steps, bench)] == [numbers(state) for state in right]
