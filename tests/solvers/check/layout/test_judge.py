"""The layout judge: Figure 2 of ProTrain by hand, each rule in a story, and a ticking clock on random problems."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.layout.buffers import Miss, bound_to_buffers, misses_of, passes_of
from solvers.check.layout.judge import device_peak, host_bytes, judge_layout
from solvers.check.layout.lanes import end_us, task_ends
from solvers.ir import LayoutBlock, LayoutChunk, LayoutPlan, LayoutProblem
from solvers.ir.layout import Policy
from tests.solvers.check.layout.naive_layout import naive_end_us, slot_loads
from tests.strategies import layout_plans, layout_problems

FREE = LayoutChunk(
    trainable=True, load_us=0, gather_us=0, reduce_us=0, offload_us=0, cpu_update_us=0, allreduce_us=0,
    device_update_us=0, persistent_bytes=0, host_bytes=0,
)  # fmt: skip
"""Its moves take no time."""
PLAIN = LayoutBlock(
    name="h", forward_us=4, backward_us=8, activation_bytes=10, input_bytes=1, forward_transient_bytes=2,
    backward_transient_bytes=3, chunks=(), swap_out_us=10, swap_in_us=10,
)  # fmt: skip


def problem(*uses: tuple[int, ...], chunk: LayoutChunk = FREE, **fields: Any) -> LayoutProblem:
    """A block for each entry, which uses these chunks; there are as many alike chunks as are named."""
    usual: dict[str, Any] = {
        "name": "story", "device_bytes": 1000, "host_bytes": 1000, "ranks": 2, "fixed_bytes": 5, "chunk_bytes": 7,
        "interval": 1, "overlap_update": True, "chunks": (chunk,) * (1 + max(max(used, default=0) for used in uses)),
        "blocks": tuple(replace(PLAIN, name=f"h{k}", chunks=used) for k, used in enumerate(uses)),
    }  # fmt: skip
    return LayoutProblem(**{**usual, **fields})


def plan(persistent: tuple[int, ...] = (), buffers: int = 0, policies: str = "") -> LayoutPlan:
    """Policies by their first letters."""
    letters: dict[str, Policy] = {"k": "keep", "s": "swap", "c": "checkpoint"}
    return LayoutPlan(persistent=persistent, buffers=buffers, policies=tuple(letters[letter] for letter in policies))


EIGHT = problem(*((k,) for k in range(8)), interval=3, chunk=replace(FREE, persistent_bytes=6, host_bytes=20))
EVERY = tuple(range(8))
FIGURE_2 = plan(EVERY, 0, "sccscckk")
"""Swap 1 and 4 (counted from one), checkpoint 2, 3, 5 and 6, keep 7 and 8; the interval is 3."""


def trend(problem: LayoutProblem, plan: LayoutPlan) -> list[int]:
    """Bytes of activations in each pass, seen by giving transient bytes beyond all others to this pass alone."""
    huge, needs = 1_000_000, []
    for name in ("forward_transient_bytes", "backward_transient_bytes"):
        order = range(len(problem.blocks)) if name.startswith("forward") else reversed(range(len(problem.blocks)))
        for number in order:
            blocks = list(problem.blocks)
            blocks[number] = replace(blocks[number], **{name: huge + getattr(blocks[number], name)})
            needs.append(device_peak(replace(problem, blocks=tuple(blocks)), plan)[0] - huge)
    states = sum(problem.chunks[chunk].persistent_bytes for chunk in plan.persistent)
    chunks = (len(plan.persistent) + plan.buffers) * problem.chunk_bytes + states
    return [need - chunks - problem.fixed_bytes for need in needs]


def test_the_memory_of_figure_2_rises_with_a_swapped_block_and_falls_when_it_has_left() -> None:
    """Forward of block j: what blocks before hold, A = 10 or I = 1 of its own, 2 transient; backward: A and 3."""
    forward = [0 + 12, 10 + 3, 11 + 3, 12 + 12, 3 - 1 + 10 + 3, 13 + 3, 14 + 12, 4 + 10 + 12]
    backward = [14 + 13, 14 + 13, 13 + 13, 12 + 13, 2 + 10 - 10 + 10 + 13, 11 + 13, 10 + 13, 0 + 13]
    assert trend(EIGHT, FIGURE_2) == [*forward, *backward]


def test_figure_2_takes_what_its_repeated_forwards_take_and_hides_its_swaps() -> None:
    """8·4 + 8·8 + 4·4 = 112; forward 5 needs the first swap-out, which ends at 14, four blocks before 16."""
    ends = task_ends(EIGHT, FIGURE_2)
    assert (ends["swap-out", 0], ends["swap-out", 3], ends["forward", 7]) == (14, 26, 32)
    assert ends["backward", 7] == 40
    assert ends["swap-in", 3] == 40 + 10  # after backward 7, the fourth after block 3
    assert ends["backward", 4] == 40 + 8 + 12 + 12
    assert ends["swap-in", 0] == 72 + 10
    assert end_us(EIGHT, FIGURE_2) == 112


def test_a_block_too_slow_to_leave_delays_the_forward_after_the_interval() -> None:
    slow = replace(EIGHT, blocks=tuple(replace(block, swap_out_us=40) for block in EIGHT.blocks))
    ends = task_ends(slow, FIGURE_2)
    assert ends["swap-out", 0] == 44
    assert [ends["forward", k] for k in (3, 4, 5, 6)] == [16, 48, 52, 56]
    assert ends["swap-out", 3] == 84
    assert (ends["forward", 7], ends["backward", 7]) == (84 + 4, 84 + 4 + 8)


def test_a_swap_in_waits_until_its_bytes_are_counted_again() -> None:
    """Interval 1, four blocks: block 0 returns after backward 2, block 2 after the last forward, as 4 is not there."""
    four = problem((0,), (0,), (0,), (0,))
    ends = task_ends(four, plan((0,), 0, "sksk"))
    assert ends["swap-out", 0] == 14 and ends["forward", 2] == 14 + 4
    assert (ends["forward", 3], ends["swap-out", 2], ends["swap-in", 2]) == (22, 28, 38)
    assert (ends["backward", 2], ends["swap-in", 0]) == (46, 56)
    assert (ends["backward", 1], ends["backward", 0]) == (54, 64)
    assert trend(four, plan((0,), 0, "sksk")) == [12, 22, 22, 32, 33, 23, 23, 13]


SLOW = replace(
    FREE, load_us=2, gather_us=1, reduce_us=1, offload_us=2, cpu_update_us=3, allreduce_us=2, device_update_us=1
)
"""A microsecond of network each way, two of the host link."""


def test_chunks_travel_through_two_buffers() -> None:
    """Forward 0 and 1 load, chunk 0 goes for 2; backward 2 and 1 find theirs, 0 loads into the emptied buffer of 2."""
    three = problem((0,), (1,), (2,), chunk=SLOW)
    chosen = plan((), 2, "kkk")
    passes = passes_of(three, ())
    assert misses_of(three, passes, 2) == [
        [Miss(0, None)], [Miss(1, None)], [Miss(2, ("forward", 0))], [], [], [Miss(0, ("offload", 2))],
    ]  # fmt: skip
    ends = task_ends(three, chosen)
    assert [ends["gather", n] for n in range(3)] == [3, 5, 10]  # the third waits for forward 0, which ends at 7
    assert [ends["forward", k] for k in range(3)] == [7, 11, 15]
    assert (ends["backward", 2], ends["reduce", 2], ends["offload", 2]) == (23, 24, 26)
    assert (ends["load", 3], ends["gather", 3]) == (28, 29)
    assert [ends["backward", k] for k in (1, 0)] == [31, 39]
    assert (ends["offload", 0], ends["cpu-update", 0]) == (42, 45)
    assert judge_layout(three, chosen).objective_us == 45


def test_updates_wait_for_all_gradients_where_they_may_not_overlap() -> None:
    """The last offload ends at 42 as above: then three updates of 3 one after the other."""
    three = problem((0,), (1,), (2,), chunk=SLOW, overlap_update=False)
    ends = task_ends(three, plan((), 2, "kkk"))
    assert [ends["cpu-update", c] for c in (2, 1, 0)] == [45, 48, 51]


def test_the_network_serves_first_whom_was_issued_first() -> None:
    """Backward 1 completes chunks 1 and 2; chunk 0, loaded when the first is reduced, is gathered after the second."""
    three = problem((0,), (1, 2), chunk=replace(FREE, reduce_us=9, load_us=1, gather_us=2))
    blocks = (replace(three.blocks[0], forward_us=1, backward_us=1), replace(three.blocks[1], backward_us=2))
    three = replace(three, blocks=blocks)
    ends = task_ends(three, plan((), 2, "kk"))
    assert misses_of(three, passes_of(three, ()), 2)[3] == [Miss(0, ("offload", 1))]
    assert ends["reduce", 1] == ends["backward", 1] + 9
    assert ends["load", 3] == ends["reduce", 1] + 1
    assert ends["reduce", 2] == ends["reduce", 1] + 9  # issued with it: before the gather, issued later
    assert ends["gather", 3] == ends["reduce", 2] + 2
    assert ends["backward", 0] == ends["gather", 3] + 1


def test_of_two_issued_at_once_the_gather_goes_first() -> None:
    """Backward 2 ends at 30 and frees a buffer: the load ends at 38, with backward 1; its gather takes the network."""
    frozen = replace(FREE, trainable=False)
    chunks = (replace(frozen, load_us=8, gather_us=2), replace(FREE, reduce_us=5), frozen)
    three = problem((0,), (1,), (2,), chunks=chunks)
    ends = task_ends(three, plan((), 2, "kkk"))
    assert (ends["backward", 2], ends["load", 3], ends["backward", 1]) == (30, 38, 38)
    assert (ends["gather", 3], ends["reduce", 1], ends["backward", 0]) == (40, 45, 48)


def test_nothing_is_loaded_twice_where_all_chunks_have_buffers() -> None:
    """Four buffers for three chunks: after the forward the network only reduces, right after each backward."""
    three = problem((0,), (1,), (2,), chunk=SLOW)
    ends = task_ends(three, plan((), 4, "kkk"))
    assert [number for do, number in ends if do == "load"] == [0, 1, 2]
    assert [ends["reduce", c] for c in (2, 1, 0)] == [15 + 8 + 1, 15 + 16 + 1, 15 + 24 + 1]


def test_a_tied_chunk_stays_with_its_gradients_from_the_last_block_to_the_first() -> None:
    """Embedding and head share chunk 0: backward of 1 needs it and its own chunk at once, forward one at a time."""
    tied = problem((0,), (1,), (0,), chunk=replace(SLOW, host_bytes=1))
    needed = [len(bound) for bound in bound_to_buffers(tied, passes_of(tied, ()))]
    assert needed == [1, 1, 1, 1, 2, 1]
    assert judge_layout(tied, plan((), 1, "kkk")).violations == (
        "buffers is 1, but backward of block 1 ('h1') needs 2 chunks in buffers at once",
    )
    assert judge_layout(tied, plan((), 2, "kkk")).clean
    assert judge_layout(tied, plan((0,), 1, "kkk")).clean
    ends = task_ends(tied, plan((0,), 1, "kkk"))
    assert ends["allreduce", 0] == ends["backward", 0] + 2  # once, when block 0 has added its share
    frozen = replace(tied, chunks=(replace(FREE, trainable=False), tied.chunks[1]))
    assert judge_layout(frozen, plan((), 1, "kkk")).clean


def test_a_frozen_chunk_leaves_nothing_behind() -> None:
    """Its buffer is free at the end of the backward, without a reduction or an offload."""
    frozen = replace(FREE, trainable=False, load_us=5)
    two = problem((0,), (1,), chunk=frozen)
    assert misses_of(two, passes_of(two, ()), 1) == [
        [Miss(0, None)], [Miss(1, ("forward", 0))], [], [Miss(0, ("backward", 1))],
    ]  # fmt: skip
    ends = task_ends(two, plan((), 1, "kk"))
    assert {do for do, _ in ends} == {"load", "gather", "forward", "backward"}
    assert ends["backward", 0] == 5 + 4 + 5 + 4 + 8 + 5 + 8


def test_what_is_asked_for_latest_goes_and_of_equals_the_larger_index() -> None:
    """Forward 3 needs one of three buffers: chunk 2 returns first, of 0 and 1, both asked for by backward 1, 1 goes."""
    story = problem((0, 1), (0, 1), (2,), (3,))
    misses = misses_of(story, passes_of(story, ()), 3)
    assert misses[3] == [Miss(3, ("forward", 1))]
    assert misses[4:] == [[], [], [Miss(1, ("offload", 3))], []]
    assert slot_loads(story, plan((), 3, "kkkk")) == [
        (0, 0, None), (0, 1, None), (2, 2, None), (3, 3, ("forward", 1)), (6, 1, ("offload", 3)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (plan((8,), 1, "kkkkkkkk"), "persistent[0] is 8, but there are only 8 chunks"),
        (plan((1, 0), 1, "kkkkkkkk"), "persistent has 0 after 1, but each stands once, in ascending order"),
        (plan((1, 1), 1, "kkkkkkkk"), "persistent has 1 after 1, but each stands once, in ascending order"),
        (plan((), -1, "kkkkkkkk"), "buffers is -1, below 0"),
        (plan((), 1, "kkk"), "policies has 3 entries, but the problem has 8 blocks"),
        (plan((), 1, "kkkkkkks"), "policies[7] is swap, but block 'h7' has no choice: it must be keep"),
        (plan((0,), 0, "kkkkkkkk"), "buffers is 0, but forward of block 1 ('h1') needs 1 chunks in buffers at once"),
        (plan(EVERY, 0, "kkkkkkkk"), "backward of block 7 ('h7') needs 192 bytes on the device, but it has 120"),
        (plan((), 2, "sscccckk"), "the decision needs 180 bytes of host memory, but there are 170"),
    ],
)
def test_broken_decisions_are_refused(decision: LayoutPlan, words: str) -> None:
    blocks = (*EIGHT.blocks[:7], replace(EIGHT.blocks[7], choice=False))
    tight = replace(EIGHT, device_bytes=120, host_bytes=170, blocks=blocks)
    verdict = judge_layout(tight, decision)
    assert words in verdict.violations
    assert verdict.objective_us is None


def test_memory_counts_states_buffers_and_the_host() -> None:
    """Chunks 0 and 1 stay: 2·(7 + 6), 3 buffers of 7, 5 fixed, 27 of activations; six chunks and two swaps leave."""
    chosen = plan((0, 1), 3, "sccscckk")
    assert device_peak(EIGHT, chosen) == (26 + 21 + 5 + 27, "backward of block 6 ('h6')")
    assert host_bytes(EIGHT, chosen) == 6 * 20 + 2 * 10


@settings(max_examples=200)
@given(st.data())
def test_a_ticking_clock_agrees(data: st.DataObject) -> None:
    tiny = data.draw(layout_problems())
    chosen = data.draw(layout_plans(tiny))
    if data.draw(st.booleans()):
        needed = max(len(bound) for bound in bound_to_buffers(tiny, passes_of(tiny, chosen.persistent)))
        chosen = replace(chosen, buffers=needed)
    verdict = judge_layout(tiny, chosen)
    naive = naive_end_us(tiny, chosen)
    stuck = any(violation.startswith("buffers is") for violation in verdict.violations)
    assert (naive is None) == stuck
    fits = device_peak(tiny, chosen)[0] <= tiny.device_bytes and host_bytes(tiny, chosen) <= tiny.host_bytes
    assert verdict.clean == (fits and not stuck)
    if naive is not None:
        assert end_us(tiny, chosen) == naive
        assert verdict.objective_us == (naive if fits else None)


@given(st.data())
def test_no_decision_is_faster_than_its_compute_lane(data: st.DataObject) -> None:
    tiny = data.draw(layout_problems())
    chosen = replace(data.draw(layout_plans(tiny)), buffers=len(tiny.chunks))
    again = sum(b.forward_us for b, p in zip(tiny.blocks, chosen.policies, strict=True) if p == "checkpoint")
    assert end_us(tiny, chosen) >= again + sum(block.forward_us + block.backward_us for block in tiny.blocks)
    assert end_us(replace(tiny, device_bytes=0, host_bytes=0), chosen) == end_us(tiny, chosen)
