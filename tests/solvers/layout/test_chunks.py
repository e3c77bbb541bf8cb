"""Chunks: packed in execution order, of the size that wastes least."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import InvalidInput
from solvers.layout.chunks import DOUBLINGS, Packing, Parameter, best_packing, pack, packed


def parameters(*sizes: int, frozen: tuple[int, ...] = ()) -> list[Parameter]:
    """One block each, in order."""
    return [Parameter(f"p{n}", size, (n,), trainable=n not in frozen) for n, size in enumerate(sizes)]


def waste_bytes(packing: Packing) -> int:
    """What is empty in all chunks together."""
    return sum(packing.chunk_bytes - chunk.bytes for chunk in packing.chunks)


def test_a_parameter_that_does_not_fit_opens_the_next_chunk() -> None:
    packing = pack(parameters(4, 3, 4, 9, 1), 10)
    assert [chunk.parameters for chunk in packing.chunks] == [(0, 1), (2,), (3, 4)]
    assert [chunk.bytes for chunk in packing.chunks] == [7, 4, 10]
    assert [chunk.blocks for chunk in packing.chunks] == [(0, 1), (2,), (3, 4)]
    assert waste_bytes(packing) == 3 * 10 - 21


def test_an_earlier_chunk_is_never_filled_up_later() -> None:
    """That would break the execution order, in which chunks are loaded and given up (ProTrain §3.1.1)."""
    assert [chunk.parameters for chunk in pack(parameters(6, 6, 4), 10).chunks] == [(0,), (1, 2)]


def test_a_tied_parameter_lies_where_it_is_first_used() -> None:
    tied = [Parameter("head", 2, (3,)), Parameter("table", 5, (0, 3)), Parameter("layer", 5, (1,))]
    chunks = pack(tied, 10).chunks
    assert [chunk.parameters for chunk in chunks] == [(1, 2), (0,)]
    assert chunks[0].blocks == (0, 1, 3)


def test_trainable_and_frozen_parameters_are_packed_apart() -> None:
    """The frozen ones share a chunk across the trainable ones between them; chunks stand in order of first use."""
    packing = pack(parameters(4, 4, 4, 4, 4, frozen=(0, 2, 3)), 8)
    assert [chunk.parameters for chunk in packing.chunks] == [(0, 2), (1, 4), (3,)]
    assert [chunk.trainable for chunk in packing.chunks] == [False, True, False]


def test_a_parameter_of_no_block_is_in_no_chunk() -> None:
    some = [*parameters(4, 4), Parameter("nowhere", 100, ())]
    assert best_packing(some, step_bytes=1).unused == (2,)
    assert all(2 not in chunk.parameters for chunk in best_packing(some, step_bytes=1).chunks)


def test_a_chunk_smaller_than_a_parameter_is_refused() -> None:
    with pytest.raises(InvalidInput, match="parameter 'p1' takes 11 bytes, but a chunk only 10: make chunks larger"):
        pack(parameters(4, 11), 10)


def test_nothing_to_pack_is_refused() -> None:
    for some in ([], [Parameter("nowhere", 5, ())]):
        with pytest.raises(InvalidInput, match="no block uses a parameter"):
            best_packing(some)


def test_the_larger_of_equally_good_sizes_is_taken() -> None:
    """Six parameters of 4: chunks of 4, 8, 12 and 24 waste nothing."""
    six = parameters(*[4] * 6)
    assert best_packing(six, step_bytes=4, range_bytes=8).chunk_bytes == 12
    assert best_packing(six, step_bytes=4, range_bytes=40).chunk_bytes == 24
    assert packed(six, 8).chunk_bytes == 8


def test_the_search_goes_farther_only_where_too_much_is_empty() -> None:
    """Two thirds of every second chunk stay empty unless a chunk holds a whole layer of 4 and 6."""
    layers = parameters(*[6, 5] * 10)
    assert best_packing(layers, step_bytes=1, range_bytes=2, waste=1.0).chunk_bytes == 6
    assert best_packing(layers, step_bytes=1, range_bytes=2, waste=0.05).chunk_bytes == 11


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.booleans(), st.sets(st.integers(0, 9), max_size=2)), min_size=1),
    st.integers(1, 4),
    st.integers(0, 40),
)
def test_any_packing_holds_every_parameter_once_and_no_size_of_the_grid_wastes_less(
    drawn: list[tuple[int, bool, set[int]]], step: int, reach: int
) -> None:
    some = [Parameter(f"p{n}", s, tuple(sorted(blocks)), trainable) for n, (s, trainable, blocks) in enumerate(drawn)]
    used = [number for number, one in enumerate(some) if one.blocks]
    if not used:
        return
    packing = best_packing(some, step_bytes=step, range_bytes=reach, waste=1.0)
    assert sorted([*packing.unused, *(number for chunk in packing.chunks for number in chunk.parameters)]) == list(
        range(len(some))
    )
    for chunk in packing.chunks:
        assert 0 < chunk.bytes == sum(some[number].bytes for number in chunk.parameters) <= packing.chunk_bytes
        assert {some[number].trainable for number in chunk.parameters} == {chunk.trainable}
        assert set(chunk.blocks) == {block for number in chunk.parameters for block in some[number].blocks}
        firsts = [some[number].blocks[0] for number in chunk.parameters]
        assert firsts == sorted(firsts)
    least = -(-max(some[number].bytes for number in used) // step)
    most = -(-sum(some[number].bytes for number in used) // step)
    wastes = [waste_bytes(pack(some, k * step)) for k in range(least, min(least + reach // step, most) + 1)]
    assert waste_bytes(packing) == min(wastes)
    assert packing.chunk_bytes == max((least + k) * step for k, w in enumerate(wastes) if w == min(wastes))


def test_the_search_ends_where_nothing_helps() -> None:
    """Parameters of 7 never fill chunks of up to 13 well; the search stops after a few doublings all the same."""
    packing = best_packing(parameters(*[1009] * 3), step_bytes=1, range_bytes=1, waste=0.0)
    assert packing.chunk_bytes <= 1009 + (1 << DOUBLINGS)


def test_small_models_are_cut_too() -> None:
    """Ten layers of 64 KiB and 4 KiB: steps of 1 KiB, up to twice the largest. Chunks of a layer waste nothing."""
    packing = packed(parameters(*[65536, 4096] * 10), None)
    assert packing.chunk_bytes == 65536 + 4096 and len(packing.chunks) == 10
    tiny = packed(parameters(100, 100, 100), None)
    assert tiny.chunk_bytes == 512 and len(tiny.chunks) == 1
    assert packed(parameters(10**9, 7), None).chunk_bytes % (1 << 20) == 0
