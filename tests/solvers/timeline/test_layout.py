"""The timeline of layout schedules: times, labels, levels and stalls, worked out by hand."""

import pytest
from msgspec.structs import replace

from solvers.ir import InvalidProblem, LayoutPlan, LayoutProblem
from solvers.layout.lower import lower
from solvers.timeline import chrome_trace, simulate
from tests.solvers.check.layout.test_schedule import TIED, block, chunk

ONE = LayoutProblem(
    name="two layers, one rank",
    device_bytes=100,
    host_bytes=100,
    ranks=1,
    fixed_bytes=1,
    chunk_bytes=8,
    interval=1,
    overlap_update=True,
    chunks=tuple(replace(chunk(), gather_us=0, reduce_us=0, allreduce_us=0) for _ in range(2)),
    blocks=(block(0, 0), block(1, 1)),
)


def test_one_buffer_makes_loads_wait_and_memory_is_known_pass_by_pass() -> None:
    plan = LayoutPlan(persistent=(), buffers=1, policies=("checkpoint", "keep"))
    schedule = lower(ONE, plan)
    report = simulate(ONE, schedule)
    # load 0-4, forward 4-10, load 10-14, forward 14-20, backward 20-31 in the same buffer, offload 31-33, load 33-37,
    # forward again 37-43, backward 43-54, offload 54-56; updates 33-38 and 56-61.
    assert report.makespan_us == 61
    assert report.stall_us == {"load": 4 + 4 + 6, "update": 7}
    assert report.memory == (
        (0.0, 9 + 2 + 3),
        (10.0, 9 + 2 + 9 + 3),
        (20.0, 9 + 2 + 9 + 4),
        (31.0, 9 + 9 + 4),
        (54.0, 9),
    )
    assert (report.peak_bytes, report.peak_at_us) == (24, 20.0)
    labels = [span.label for span in report.spans if span.end_us > span.start_us]
    assert labels.count("forward of layer 0") == labels.count("forward again of layer 0") == 1
    assert labels.count("load of chunk 0") == 2 and labels.count("load of chunk 1") == 1
    assert labels.count("offload of chunk 1") == labels.count("cpu-update of chunk 1") == 1
    names = {event["name"] for event in chrome_trace(report, schedule)["traceEvents"]}
    assert {"backward of layer 1", "memory", "budget", "after"} <= names


def test_what_is_swapped_is_gone_between_its_release_and_its_return() -> None:
    three = replace(ONE, blocks=(*ONE.blocks, block(2), block(3)), device_bytes=200)
    plan = LayoutPlan(persistent=(0, 1), buffers=0, policies=("swap", "keep", "keep", "keep"))
    report = simulate(three, lower(three, plan))
    always = 2 * (8 + 24) + 1
    held = [9 + 3, 18 + 3, 18 + 3, 27 + 3, 27 + 4, 18 + 4, 18 + 4, 9 + 4]
    assert [level - always for _, level in report.memory] == [*held, 0]
    busy = {lane: sum(s.end_us - s.start_us for s in report.spans if s.lane == f"0.{lane}") for lane in ("in", "out")}
    assert busy == {"in": 7, "out": 7}
    assert report.stall_us == {"swap_out": 1}, "out from 6 to 13, but there is no room for layer 2 at 12"
    assert report.makespan_us == 4 * (6 + 11) + 1 + 2, "the device updates last"


def test_exchanges_of_ranks_stand_on_their_lane() -> None:
    plan = LayoutPlan(persistent=(1,), buffers=3, policies=("keep",) * 6)
    report = simulate(TIED, lower(TIED, plan))
    comm = [span.label for span in report.spans if span.lane == "0.comm"]
    assert "allreduce of chunk 1" in comm and "reduce of chunk 0" in comm and "gather of chunk 2" in comm
    assert not any("reduce of chunk 2" in label for label in comm), "it is frozen"
    assert report.stall_us["communication"] > 0


def test_foreign_schedules_are_refused() -> None:
    schedule = lower(TIED, LayoutPlan(persistent=(1,), buffers=3, policies=("keep",) * 6))
    with pytest.raises(InvalidProblem, match="is none of this problem's"):
        simulate(ONE, schedule)
    deeper = replace(TIED, blocks=(*TIED.blocks, block(6, 5)))
    with pytest.raises(InvalidProblem, match="the problem has 14: lower a plan of this problem"):
        simulate(deeper, schedule)
    sent = tuple(replace(one, do="send") if one.do == "update" else one for one in schedule.actions)
    with pytest.raises(InvalidProblem, match="which no layout schedule does"):
        simulate(TIED, replace(schedule, actions=sent))
