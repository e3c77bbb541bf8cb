"""Random `layout` problems and plans."""

from hypothesis import strategies as st

from solvers.ir import (
    LayoutBlock,
    LayoutChunk,
    LayoutPlan,
    LayoutProblem,
)
from solvers.ir.layout import POLICIES
from tests.strategies.common import names


@st.composite
def layout_problems(draw: st.DrawFn, max_blocks: int = 5, max_chunks: int = 4) -> LayoutProblem:
    """Few blocks and chunks, tied and frozen ones among them; device and host memory from too small to ample."""
    ranks, count = draw(st.integers(1, 2)), draw(st.integers(1, max_chunks))
    chunks = tuple(draw(_layout_chunks(ranks)) for _ in range(count))
    uses: list[set[int]] = [
        set(draw(st.lists(st.integers(0, count - 1), max_size=2))) for _ in range(draw(st.integers(1, max_blocks)))
    ]
    for index in range(count):
        if not any(index in used for used in uses):
            uses[index * len(uses) // count].add(index)
    blocks = tuple(draw(_layout_blocks(tuple(sorted(used)))) for used in uses)
    size = draw(st.integers(1, 4))
    device = sum(size + chunk.persistent_bytes for chunk in chunks) + sum(b.activation_bytes for b in blocks) + 8
    host = sum(chunk.host_bytes for chunk in chunks) + sum(block.activation_bytes for block in blocks)
    return LayoutProblem(
        name=draw(names),
        device_bytes=draw(st.just(device) | st.integers(0, device)),
        host_bytes=draw(st.just(host) | st.integers(0, host)),
        ranks=ranks,
        fixed_bytes=draw(st.integers(0, 3)),
        chunk_bytes=size,
        interval=draw(st.integers(1, 3)),
        overlap_update=draw(st.booleans()),
        chunks=chunks,
        blocks=blocks,
    )


@st.composite
def _layout_chunks(draw: st.DrawFn, ranks: int) -> LayoutChunk:
    trainable = draw(st.integers(0, 3)) > 0
    time, none = st.integers(0, 6), st.just(0)
    return LayoutChunk(
        trainable=trainable,
        load_us=draw(time),
        gather_us=draw(time if ranks > 1 else none),
        reduce_us=draw(time if trainable and ranks > 1 else none),
        offload_us=draw(time if trainable else none),
        cpu_update_us=draw(time if trainable else none),
        allreduce_us=draw(time if trainable and ranks > 1 else none),
        device_update_us=draw(time if trainable else none),
        persistent_bytes=draw(st.integers(0, 6)),
        host_bytes=draw(st.integers(0, 6)),
    )


def _layout_blocks(chunks: tuple[int, ...]) -> st.SearchStrategy[LayoutBlock]:
    return st.builds(
        LayoutBlock,
        name=names,
        forward_us=st.integers(0, 6),
        backward_us=st.integers(0, 9),
        activation_bytes=st.integers(0, 9),
        input_bytes=st.integers(0, 3),
        forward_transient_bytes=st.integers(0, 4),
        backward_transient_bytes=st.integers(0, 4),
        chunks=st.just(chunks),
        swap_out_us=st.integers(0, 9),
        swap_in_us=st.integers(0, 9),
        choice=st.integers(0, 4).map(bool),
    )


@st.composite
def layout_plans(draw: st.DrawFn, problem: LayoutProblem) -> LayoutPlan:
    """Any persistent chunks, buffers from none to too many, any policy where there is a choice."""
    count = len(problem.chunks)
    return LayoutPlan(
        persistent=tuple(sorted(draw(st.sets(st.integers(0, count - 1))))),
        buffers=draw(st.integers(0, count + 1)),
        policies=tuple(draw(st.sampled_from(POLICIES)) if b.choice else "keep" for b in problem.blocks),
    )
