"""ReCycle's step: what each technique is worth, from schedules that could run, never below what is impossible."""

from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import pipeline_us, stage_times_us
from solvers.ir import InvalidInput, ReplanProblem
from solvers.replan.estimate.sync import sync_us
from solvers.replan.recycle_schedule import scheduled
from solvers.replan.recycle_times import Techniques, period_us, recycle_step_us, reduced, schedules_of
from solvers.replan.rerouting_rules import Grid
from tests.solvers.replan.clusters import before, grid

NOTHING = Techniques(False, False, False)
FREE = Techniques(floor="none")
MODEL = before(grid(4, 4, 16, 32, sync_us=3000, layer_sync_us=500, p2p_us=10))
LAYERS = (4, 4, 4, 4)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    """Up to four pipelines of up to four stages that lost some nodes, a survivor of each stage left."""
    depth, degree = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    layers = tuple(draw(st.lists(st.integers(1, 4), min_size=depth, max_size=depth)))
    failed = tuple(draw(st.lists(st.integers(0, degree - 1), min_size=depth, max_size=depth)))
    return Grid(degree, layers, draw(st.integers(1, 5)), failed)


def model(layers: tuple[int, ...]) -> ReplanProblem:
    return msgspec.structs.replace(MODEL, layers=sum(layers))


def step(problem: ReplanProblem, one: Grid, techniques: Techniques) -> int:
    found = recycle_step_us(problem, one.layers, one.microbatches, one.failed, one.degree, techniques)
    assert found is not None
    return found


def test_without_techniques_it_is_f7_with_whole_microbatches() -> None:
    assert recycle_step_us(MODEL, LAYERS, 8, (1, 0, 0, 0), 4, NOTHING) == pipeline_us(MODEL, LAYERS, 11) + 3000 + 2000


@settings(max_examples=60, deadline=None)
@given(one=grids())
def test_a_technique_never_lengthens_the_step(one: Grid) -> None:
    problem = model(one.layers)
    for filling, floor in product((False, True), ("none", "fault-free")):
        times = {
            (decoupled, staggered): step(problem, one, Techniques(filling, decoupled, staggered, floor=floor))  # type: ignore[arg-type]
            for decoupled, staggered in product((False, True), repeat=2)
        }
        assert times[True, True] <= min(times[True, False], times[False, True])
        assert max(times[True, False], times[False, True]) <= times[False, False]


@settings(max_examples=60, deadline=None)
@given(one=grids())
def test_no_step_is_shorter_than_the_work_of_the_fullest_node(one: Grid) -> None:
    problem = model(one.layers)
    sync = sync_us(problem, [one.layers] * one.degree)
    work = [
        one.most_microbatches(stage) * sum(times) for stage, times in enumerate(stage_times_us(problem, one.layers))
    ]
    assert step(problem, one, FREE) >= max(work)
    whole = pipeline_us(problem, one.layers, one.microbatches) + sync
    assert step(problem, one, Techniques()) == max(whole, step(problem, one, FREE))


@settings(max_examples=60, deadline=None)
@given(one=grids())
def test_staggered_steps_can_follow_each_other(one: Grid) -> None:
    """Two steps a period apart: no stage begins the second before it ended, synchronized and updated in the first."""
    problem = model(one.layers)
    sync = [700 * layers for layers in one.layers]
    for work in schedules_of(problem, one, Techniques()):
        passes = scheduled(work)
        period = period_us(passes, sync, True)
        for stage, own in enumerate(sync):
            mine = [p for p in passes if p.stage == stage]
            assert min(p.start_us for p in mine) + period >= max(p.end_us for p in mine) + own
        assert period <= period_us(passes, sync, False) == max(p.end_us for p in passes) + max(sync)


def test_one_node_lost_of_sixteen_by_hand() -> None:
    """One of four nodes of a stage lost: 8 microbatches become 11 there, and bubbles take up the difference."""
    problem = msgspec.structs.replace(MODEL, p2p_us=0)
    one = Grid(4, LAYERS, 8, (1, 0, 0, 0))
    off, filled = step(problem, one, NOTHING), step(problem, one, Techniques(True, False, False))
    assert off == (11 + 3) * 12000 + 5000
    assert (8 + 3) * 12000 + 5000 <= step(problem, one, Techniques()) < filled < off


def test_a_loss_in_the_last_stage_needs_all_three_techniques() -> None:
    """No bubble is near the end: peers of a last-stage node gain by waiting weights, and by updating on their own."""
    problem = msgspec.structs.replace(MODEL, p2p_us=0)
    one = Grid(4, LAYERS, 8, (0, 0, 0, 1))
    times = [
        step(problem, one, techniques)
        for techniques in (NOTHING, Techniques(True, False, False), Techniques(True, True, False), Techniques())
    ]
    assert times == [173_000, 173_000, 149_000, 137_000]
    assert times[-1] == pipeline_us(problem, LAYERS, 8) + 5000


@settings(max_examples=300, deadline=None)
@given(degree=st.integers(1, 400), microbatches=st.integers(1, 20), data=st.data())
def test_the_smaller_grid_takes_over_no_less(degree: int, microbatches: int, data: st.DataObject) -> None:
    failed = tuple(data.draw(st.lists(st.integers(0, min(degree - 1, 40)), min_size=3, max_size=3)))
    one = Grid(degree, (2, 2, 2), microbatches, failed)
    small = reduced(one)
    assert small.degree <= degree
    assert all(small.most_microbatches(stage) >= one.most_microbatches(stage) for stage in range(3))
    if max(one.most_microbatches(stage) for stage in range(3)) <= microbatches + 2 <= 2 * microbatches:
        assert [small.most_microbatches(s) for s in range(3)] == [one.most_microbatches(s) for s in range(3)]


def test_a_smaller_grid_stands_well_for_a_larger_one() -> None:
    large = Grid(24, LAYERS, 6, (1, 0, 2, 0))
    small = reduced(large)
    assert small.degree < 12
    sync = [5000] * 4
    times = [
        min(period_us(scheduled(work), sync, True) for work in schedules_of(MODEL, one, FREE)) for one in (large, small)
    ]
    assert times[0] == pytest.approx(times[1], rel=0.03)


def test_10000_nodes_are_remembered_by_what_survivors_take_over() -> None:
    one = recycle_step_us(MODEL, LAYERS, 8, (1, 0, 3, 0), 2500)
    assert one == recycle_step_us(MODEL, LAYERS, 8, (2, 0, 1, 0), 2500)
    assert one is not None
    assert one >= pipeline_us(MODEL, LAYERS, 8)


def test_without_survivors_or_memory_there_is_no_step() -> None:
    assert recycle_step_us(MODEL, LAYERS, 8, (4, 0, 0, 0), 4) is None
    tight = msgspec.structs.replace(MODEL, memory_bytes=4 * 1000 + 4 * 100 * 2)
    assert recycle_step_us(tight, LAYERS, 2, (0, 0, 0, 0), 4) is not None
    assert recycle_step_us(tight, LAYERS, 2, (1, 0, 0, 0), 4) is None


def test_where_nodes_were_lost_counts() -> None:
    """Two nodes of one pipeline, or of two: as many microbatches a survivor, other ways between them."""
    failed, first = (1, 0, 1, 0), ((0,), (), (0,), ())
    apart = ((0,), (), (1,), ())
    known = recycle_step_us(MODEL, LAYERS, 8, failed, 4, FREE)
    assert known == recycle_step_us(MODEL, LAYERS, 8, failed, 4, FREE, first)
    elsewhere = recycle_step_us(MODEL, LAYERS, 8, failed, 4, FREE, apart)
    brute = min(
        period_us(scheduled(work), [5000] * 4, True)
        for work in schedules_of(MODEL, Grid(4, LAYERS, 8, failed), FREE, apart)
    )
    assert elsewhere == brute != known
    far = [((0,), (), (9,), ()), first]  # beyond what one grid simulates, the first pipelines stand for all
    assert len({recycle_step_us(MODEL, LAYERS, 8, failed, 2500, FREE, one) for one in far}) == 1


def test_what_memory_allows_shortens_steps() -> None:
    wide = msgspec.structs.replace(MODEL, last_extra_us=(4000, 8000))
    lean = msgspec.structs.replace(wide, memory_bytes=4 * 1000 + 4 * 400)
    some, plenty = (recycle_step_us(p, LAYERS, 8, (1, 0, 0, 0), 4, FREE) for p in (lean, wide))
    assert some is not None and plenty is not None
    assert plenty <= some


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"weight_share is 1\.5"):
        Techniques(weight_share=1.5)
    with pytest.raises(InvalidInput, match="there is no choice for floor"):
        Techniques(floor="ceiling")  # type: ignore[arg-type]
