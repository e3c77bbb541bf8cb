"""A layout plan as FSDP2's settings: what stays, what is found at the turn, what is checkpointed, what is otherwise."""

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from solvers.check.layout.buffers import misses_of, passes_of
from solvers.ir import InvalidProblem, LayoutPlan, LayoutProblem
from solvers.layout.fsdp2 import lower_to_fsdp2
from solvers.planner import lower_to_fsdp2 as by_planner
from tests.solvers.check.layout.test_schedule import block, chunk
from tests.solvers.layout.lowered import planned

SIX = LayoutProblem(
    name="six layers with a chunk each",
    device_bytes=400,
    host_bytes=400,
    ranks=2,
    fixed_bytes=5,
    chunk_bytes=8,
    interval=1,
    overlap_update=True,
    chunks=tuple(chunk() for _ in range(6)),
    blocks=tuple(block(number, number) for number in range(6)),
)


def test_persistent_blocks_and_the_last_buffered_ones_are_not_resharded() -> None:
    plan = LayoutPlan(persistent=(0,), buffers=2, policies=("keep", "checkpoint", "swap", "checkpoint", "keep", "keep"))
    told = lower_to_fsdp2(SIX, plan)
    assert told == by_planner(SIX, plan)
    assert [unit.offload for unit in told.units] == [False, True, True, True, True, True]
    assert [unit.reshard for unit in told.units] == [False, True, True, True, False, False]
    assert [unit.checkpoint for unit in told.units] == [False, True, True, True, False, False]
    buffers, updates, swaps = told.departures
    assert buffers.startswith("the plan has 2 buffers of 8 bytes; FSDP2 allocates")
    assert updates.startswith("the plan updates on the host beside backward")
    assert swaps.startswith("the plan swaps the activations of 1 blocks")


def test_a_plan_without_offload_departs_from_nothing_on_several_ranks() -> None:
    plan = LayoutPlan(persistent=tuple(range(6)), buffers=0, policies=("keep",) * 6)
    told = lower_to_fsdp2(SIX, plan)
    assert not any(unit.offload or unit.reshard or unit.checkpoint for unit in told.units)
    assert told.departures == ()
    alone = replace(
        SIX, ranks=1, chunks=tuple(replace(chunk(), gather_us=0, reduce_us=0, allreduce_us=0) for _ in "6" * 6)
    )
    assert len(lower_to_fsdp2(alone, plan).departures) == 1


def test_shared_and_partly_persistent_chunks_are_told() -> None:
    tied = replace(SIX, blocks=(*SIX.blocks[:5], block(5, 0, 5)))
    plan = LayoutPlan(persistent=(5,), buffers=3, policies=("keep",) * 6)
    told = lower_to_fsdp2(tied, plan)
    assert told.units[5].offload
    assert "the chunks of 2 blocks are partly on the host, or shared; FSDP2 shards whole blocks" in told.departures


def test_foreign_plans_are_refused() -> None:
    with pytest.raises(InvalidProblem, match="give a plan of this problem"):
        lower_to_fsdp2(SIX, LayoutPlan(persistent=(), buffers=3, policies=("keep",) * 5))


@settings(max_examples=60)
@given(planned())
def test_a_block_is_resharded_where_the_judge_loads_in_its_backward(
    found: tuple[LayoutProblem, LayoutPlan, int],
) -> None:
    problem, plan, _ = found
    passes = passes_of(problem, plan.persistent)
    misses = misses_of(problem, passes, plan.buffers)
    loaded = {one.block for one, missed in zip(passes, misses, strict=True) if one.do == "backward" and missed}
    told = lower_to_fsdp2(problem, plan)
    assert {number for number, unit in enumerate(told.units) if unit.reshard} == loaded
