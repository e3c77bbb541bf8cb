"""The base of `layout`: no decision ends sooner, whatever memory there is."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.layout.floor import base_us
from solvers.check.layout.lanes import end_us
from solvers.ir import LayoutBlock, LayoutChunk, LayoutProblem
from tests.solvers.layout.brute_force import optimum, random_problem
from tests.strategies import layout_plans, layout_problems

CHUNK = LayoutChunk(
    trainable=True, load_us=9, gather_us=9, reduce_us=1, offload_us=2, cpu_update_us=12, allreduce_us=9,
    device_update_us=6, persistent_bytes=0, host_bytes=0,
)  # fmt: skip
BLOCK = LayoutBlock(
    name="h", forward_us=4, backward_us=8, activation_bytes=0, input_bytes=0, forward_transient_bytes=0,
    backward_transient_bytes=0, chunks=(0,), swap_out_us=9, swap_in_us=9,
)  # fmt: skip


def problem(chunks: int, overlap_update: bool = True) -> LayoutProblem:
    """A block for each chunk: passes take 12 µs a block."""
    blocks = tuple(replace(BLOCK, chunks=(number,)) for number in range(chunks))
    return LayoutProblem(
        name="story", device_bytes=99, host_bytes=99, ranks=2, fixed_bytes=0, chunk_bytes=1, interval=1,
        overlap_update=overlap_update, chunks=(CHUNK,) * chunks, blocks=blocks,
    )  # fmt: skip


def test_two_updates_are_shared() -> None:
    """Passes end at 24; the first gradients are on the host at 8 + 8 + 1 + 2 = 19.

    Parts a on the device and 2 − a on the cpu: 24 + 6·a = 19 + 12·(2 − a) at a = 19/18, which is 30 1/3.
    """
    assert base_us(problem(2)) == 31


def test_without_overlap_both_begin_after_the_last_backward() -> None:
    """24 + 6·a = 24 + 12·(2 − a) at a = 4/3: 32."""
    assert base_us(problem(2, overlap_update=False)) == 32


def test_frozen_chunks_leave_the_passes() -> None:
    idle = replace(
        CHUNK, trainable=False, reduce_us=0, offload_us=0, cpu_update_us=0, allreduce_us=0, device_update_us=0
    )
    assert base_us(replace(problem(3), chunks=(idle,) * 3)) == 36


def test_updates_that_cost_nothing_anywhere_cost_nothing() -> None:
    free = replace(CHUNK, cpu_update_us=0, device_update_us=0)
    assert base_us(replace(problem(2), chunks=(free, free))) == 24


@given(st.data(), layout_problems())
def test_no_decision_ends_before_the_base(data: st.DataObject, tiny: LayoutProblem) -> None:
    chosen = replace(data.draw(layout_plans(tiny)), buffers=len(tiny.chunks))
    assert base_us(tiny) <= end_us(tiny, chosen)


def test_some_optima_lie_on_the_base() -> None:
    roomy = [replace(random_problem(seed), device_bytes=10**6, host_bytes=10**6) for seed in range(40)]
    best = [optimum(problem) for problem in roomy]
    assert all(base_us(problem) <= end for problem, end in zip(roomy, best, strict=True) if end is not None)
    assert sum(base_us(problem) == end for problem, end in zip(roomy, best, strict=True)) >= 5


def test_a_slow_network_is_the_floor() -> None:
    """Twice 30 all-reduced, or 21 + 4 gathered once and reduced, is more than passes and updates take."""
    slow = replace(CHUNK, allreduce_us=30, gather_us=21, reduce_us=4)
    assert base_us(replace(problem(2), chunks=(slow, slow))) == 50
    assert base_us(replace(problem(2), chunks=(slow, replace(slow, allreduce_us=20)))) == 45
