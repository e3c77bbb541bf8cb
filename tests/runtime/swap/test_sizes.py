"""The graph of an iteration of another size than was recorded."""

import msgspec

from runtime.swap.profiled import Profiled
from runtime.swap.sizes import Sizes, alike
from tests.runtime.swap.chain import chain_profiled


def of_size(share: int, *, like: Profiled | None = None) -> Profiled:
    """The chain with what its forward pass makes `share` times as large, and memory and times by as much."""
    profiled = like or chain_profiled(6)
    graph = profiled.graph
    return profiled._replace(
        graph=msgspec.structs.replace(
            graph,
            tensors=tuple(
                msgspec.structs.replace(tensor, bytes=tensor.bytes * (share if tensor.born is not None else 1))
                for tensor in graph.tensors
            ),
            ops=tuple(msgspec.structs.replace(op, time_us=op.time_us * share) for op in graph.ops),
            memory_bytes=tuple(
                min(graph.memory_bytes) + share * (here - min(graph.memory_bytes)) for here in graph.memory_bytes
            ),
        )
    )


def test_two_recordings_go_on_in_a_straight_line() -> None:
    sizes = Sizes()
    assert sizes.at(10) is None
    sizes.note(of_size(2), 200)
    sizes.note(of_size(1), 100)
    sizes.note(of_size(3), 300)
    found, right = sizes.at(500), of_size(5)
    assert found is not None
    assert found.graph.tensors == right.graph.tensors
    assert found.graph.memory_bytes == right.graph.memory_bytes
    assert [op.time_us for op in found.graph.ops] == [op.time_us for op in right.graph.ops]


def test_what_is_no_larger_than_the_largest_recording_is_planned_as_that() -> None:
    sizes = Sizes()
    largest = of_size(3)
    sizes.note(largest, 300)
    sizes.note(of_size(1), 100)
    for size in (300, 150):
        found = sizes.at(size)
        assert found is not None and found.graph is largest.graph and found.growth == 1


def test_of_one_recording_what_comes_and_goes_grows_in_proportion() -> None:
    sizes = Sizes()
    only = of_size(1)
    sizes.note(only, 100)
    found = sizes.at(150)
    assert found is not None
    for before, after in zip(only.graph.tensors, found.graph.tensors, strict=True):
        moves = before.born is not None and before.kind not in ("parameter", "gradient", "optimizer")
        assert after.bytes == (-(-before.bytes * 3 // 2) if moves else before.bytes)
    assert min(found.graph.memory_bytes) == min(only.graph.memory_bytes)
    assert max(found.graph.memory_bytes) > max(only.graph.memory_bytes)


def test_no_recording_tells_of_more_than_twice_its_size() -> None:
    sizes = Sizes()
    assert sizes.reach(100) == 0 and not sizes.covers(0)
    sizes.note(of_size(1), 100)
    found = sizes.at(20_000)
    assert sizes.reach(20_000) == 200 and found is not None and found.growth == 2
    assert max(found.graph.memory_bytes) < 2 * max(of_size(1).graph.memory_bytes)
    sizes.note(of_size(2), 200)
    assert [sizes.reach(size) for size in (50, 300, 20_000)] == [200, 300, 400]
    assert [sizes.covers(size) for size in (99, 100, 150, 200, 201)] == [False, True, True, True, False]


def test_where_memory_comes_in_segments_nothing_larger_is_known() -> None:
    sizes = Sizes()
    profiled = of_size(1)
    asked = msgspec.structs.replace(profiled.graph, requests=())
    sizes.note(profiled._replace(graph=asked), 100)
    found = sizes.at(150)
    assert sizes.reach(150) == 100 and found is not None and found.graph is asked


def test_two_of_nearly_one_size_are_no_line() -> None:
    """Of what differs by little, the line may lead anywhere: what comes and goes grows in proportion."""
    sizes, least = Sizes(), of_size(10)
    for share, profiled in ((100, least), (101, of_size(30))):
        sizes.note(profiled, share)
    reached = sizes.at(202)
    assert reached is not None and max(reached.graph.memory_bytes) <= 2 * max(of_size(30).graph.memory_bytes)


def test_other_operators_are_no_line() -> None:
    assert alike(chain_profiled(6).graph, of_size(4).graph)
    assert not alike(chain_profiled(6).graph, chain_profiled(7).graph)
    sizes = Sizes()
    sizes.note(chain_profiled(7), 100)
    sizes.note(of_size(2), 200)
    found = sizes.at(400)
    assert found is not None and len(found.graph.ops) == len(of_size(2).graph.ops)
