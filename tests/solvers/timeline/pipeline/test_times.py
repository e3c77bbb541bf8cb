"""Pipelines: a picture by hand, known closed forms, and two other tellings of the same recurrence."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from solvers.ir import InvalidInput
from solvers.timeline.pipeline import inputs
from solvers.timeline.pipeline.inputs import Discipline
from solvers.timeline.pipeline.order import Order, cool_down, stage_order, waves
from solvers.timeline.pipeline.times import PipelineTimes, pipeline, pipeline_makespan_us
from tests.solvers.check.replan.naive_pipeline import naive_pipeline_us
from tests.solvers.timeline.pipeline.pipelines import Given, lane_ends, lane_order, longest_path_ends, random_given


def run(given: Given) -> PipelineTimes:
    arguments: dict[str, Any] = given.arguments()
    return pipeline(arguments.pop("forward_us"), arguments.pop("backward_us"), **arguments)


def test_two_stages_by_hand() -> None:
    """F takes 1 us, B 2 us: stage 1 runs F0 1-2, B0 2-4, F1 4-5, B1 5-7; stage 0 ends with B1 at 7-9 = (2 + 1) · 3."""
    times = pipeline([1, 1], [2, 2], microbatches=2)
    assert times.forward_start_us.tolist() == [[0, 1], [1, 4]]
    assert times.backward_start_us.tolist() == [[4, 7], [2, 5]]
    assert times.makespan_us == 9
    assert times.busy_us.tolist() == [6, 6]
    assert times.stall_us.tolist() == [3, 3]


def test_recomputation_hides_in_the_stall_of_the_cool_down() -> None:
    """Stage 0 waits from 2 to 4 and from 6 to 7; of its recomputations of 2 us, the first hides whole, the second 1."""
    exposed = pipeline([1, 1], [2, 2], recompute_us=[2, 0], microbatches=2)
    cooldown = pipeline([1, 1], [2, 2], recompute_us=[2, 0], microbatches=2, how=Discipline(hide_in_stalls="cooldown"))
    everywhere = pipeline([1, 1], [2, 2], recompute_us=[2, 0], microbatches=2, how=Discipline(hide_in_stalls="all"))
    assert [int(times.makespan_us) for times in (exposed, cooldown, everywhere)] == [12, 12, 10]
    assert everywhere.waited_us.tolist() == [[2, 1], [0, 0]]
    assert everywhere.backward_start_us.tolist() == [[4, 8], [2, 5]]
    assert everywhere.hidden_us.tolist() == [3, 0]
    assert everywhere.recomputing_us.tolist() == [4, 0]
    assert everywhere.stall_us.tolist() == [0, 4]
    assert cooldown.recompute_start_us.tolist()[0] == [4, 8]
    assert cooldown.hidden_us.tolist() == [0, 0]
    one = pipeline([1, 1], [2, 2], recompute_us=[2, 0], microbatches=1, how=Discipline(hide_in_stalls="cooldown"))
    assert (int(one.makespan_us), one.hidden_us.tolist()) == (6, [2, 0])
    refused = pipeline(
        [1, 1],
        [2, 2],
        recompute_us=[2, 0],
        microbatches=2,
        how=Discipline(hide_in_stalls="all", may_hide=[False, True]),
    )
    assert refused.makespan_us == 12


def test_what_forward_windows_hide_is_exposed_where_there_are_none() -> None:
    """Three microbatches on two stages: B0 and B1 of stage 0 follow a later forward pass, B2 (cool-down) does not."""
    times = pipeline([1, 1], [2, 2], forward_hidden_us=[3, 0], microbatches=3)
    assert times.recompute_us.tolist() == [[0, 0, 3], [0, 0, 0]]
    assert pipeline([1, 1], [2, 2], forward_hidden_us=[0, 3], microbatches=3).recompute_us[1].tolist() == [3, 3, 3]
    flushed = pipeline([1, 1], [2, 2], forward_hidden_us=[3, 3], microbatches=3, how=Discipline(order="gpipe"))
    assert (flushed.recompute_us == 3).all()


@pytest.mark.parametrize("order", ["1f1b", "gpipe"])
def test_equal_stages_take_m_plus_p_minus_1_rounds(order: Order) -> None:
    for depth, microbatches in product(range(1, 9), range(1, 20)):
        found = pipeline_makespan_us([5] * depth, [7] * depth, microbatches=microbatches, how=Discipline(order=order))
        assert found == (microbatches + depth - 1) * 12


def test_the_clock_that_ticks_agrees() -> None:
    source = np.random.default_rng(1)
    for _ in range(60):
        depth, microbatches, hop = int(source.integers(1, 6)), int(source.integers(1, 8)), int(source.integers(0, 4))
        times = source.integers(1, 9, size=(depth, 2))
        told = naive_pipeline_us([(int(f), int(b)) for f, b in times], microbatches, hop)
        assert pipeline_makespan_us(times[:, 0], times[:, 1], microbatches=microbatches, p2p_us=hop) == told


def test_every_end_is_the_longest_path_and_what_the_lanes_say() -> None:
    """400 random pipelines; P = 1, M < P, GPipe, hiding and hops that outlast passes are among them."""
    seen = set()
    for seed in range(400):
        given = random_given(seed)
        times, told = run(given), longest_path_ends(given)
        assert told == lane_ends(given), seed
        parts = {"F": times.forward_end_us, "R": times.recompute_end_us, "B": times.backward_end_us}
        mine = {(kind, stage, number): int(parts[kind][stage, number]) for kind, stage, number in told}
        assert mine == told, seed
        assert int(times.makespan_us) == max(told.values())
        depth = len(given.forward)
        seen |= {("one stage", depth == 1), ("few", given.microbatches < depth), (given.order, given.hide)}
    assert seen >= {("one stage", True), ("few", True), *product(("1f1b", "gpipe"), ("none", "cooldown", "all"))}


def test_a_batch_is_many_pipelines_at_once() -> None:
    source = np.random.default_rng(7)
    forward, backward, recompute = source.integers(0, 50, size=(3, 5, 6, 4))
    hops = source.integers(0, 9, size=(5, 6, 3))
    may = source.random((5, 6, 4)) < 0.5
    batch = pipeline(
        forward,
        backward,
        recompute_us=recompute,
        p2p_us=hops,
        microbatches=7,
        how=Discipline(hide_in_stalls="cooldown", may_hide=may),
    )
    assert batch.makespan_us.shape == (5, 6)
    for place in np.ndindex(5, 6):
        one = pipeline(
            forward[place],
            backward[place],
            recompute_us=recompute[place],
            p2p_us=hops[place],
            microbatches=7,
            how=Discipline(hide_in_stalls="cooldown", may_hide=may[place]),
        )
        for figure in ("makespan_us", "forward_start_us", "recompute_start_us", "backward_end_us", "stall_us"):
            assert (getattr(one, figure) == getattr(batch, figure)[place]).all()


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "CHUNK", 12)
    source = np.random.default_rng(8)
    forward, backward = source.integers(0, 50, size=(2, 50, 4))
    found = pipeline_makespan_us(forward, backward, microbatches=5)
    assert (found == pipeline(forward, backward, microbatches=5).makespan_us).all()
    assert pipeline_makespan_us(forward[:0], backward[:0], microbatches=5).shape == (0,)


def test_lane_time_adds_up() -> None:
    """Busy, recomputing and waiting fill the makespan; what is hidden is a part of the recomputing."""
    for seed in range(100):
        given = random_given(seed)
        times = run(given)
        assert (times.busy_us + times.recomputing_us + times.stall_us == times.makespan_us).all()
        assert (times.stall_us >= 0).all()
        assert (times.hidden_us <= times.recomputing_us).all()
        assert (times.hidden_us == 0).all() or given.hide != "none"


def test_a_backward_pass_waits_from_the_end_of_the_pass_before() -> None:
    """What is recomputed in a stall fits between the end of the pass before and the gradient, in every order."""
    for seed in range(200):
        given = random_given(seed)
        times, ends = run(given), longest_path_ends(given)
        for stage in range(len(given.forward)):
            passes = lane_order(given, stage)
            for before, (kind, number) in pairwise(passes):
                if kind == "B":
                    assert times.before_us[stage, number] == ends[before[0], stage, before[1]], seed
        hidden = np.minimum(times.recompute_us, times.waited_us).sum(axis=-1)
        assert (times.hidden_us <= hidden).all()
        if given.hide == "all" and all(given.may_hide):
            assert (times.hidden_us == hidden).all()


@pytest.mark.parametrize(("depth", "microbatches"), [(1, 1), (1, 5), (4, 2), (4, 4), (4, 9), (6, 3)])
def test_orders_hold_every_pass_once_and_waves_respect_them(depth: int, microbatches: int) -> None:
    for order in ("1f1b", "gpipe"):
        tick = {
            (kind, stage, number): wave
            for wave, passes in enumerate(waves(depth, microbatches, order))
            for kind, places in (("forward", passes.forward), ("backward", passes.backward))
            for stage, number in zip(*(place.tolist() for place in places), strict=True)
        }
        assert len(tick) == 2 * depth * microbatches
        for stage in range(depth):
            passes = stage_order(stage, depth, microbatches, order)
            told = [tick[one.kind, stage, one.microbatch] for one in passes]
            assert told == sorted(set(told))
            assert len(told) == 2 * microbatches


def test_the_cool_down_is_the_tail_of_a_stage() -> None:
    assert cool_down(3, 4).tolist() == [
        [False, False, True, True],
        [False, False, False, True],
        [False, False, False, False],
    ]
    assert cool_down(3, 1).tolist() == [[True], [True], [False]]
    assert cool_down(2, 2, "gpipe").all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"forward_us": [1, -1]}, "forward_us holds -1, outside 0"),
        ({"backward_us": [1.5, 2]}, "backward_us is of type float64: give whole microseconds"),
        ({"recompute_us": [2**60, 2]}, "recompute_us holds 1152921504606846976, outside"),
        ({"backward_us": [1, 2, 3]}, "do not match: give one time a stage"),
        ({"p2p_us": [1, 2]}, "do not match: give one time a stage"),
        ({"forward_us": []}, "forward_us lists no stage"),
        ({"forward_us": 3}, "forward_us lists no stage"),
        ({"microbatches": 0}, "microbatches is 0: a step has at least 1"),
        ({"how": Discipline(order="1f1")}, "there is no order '1f1': did you mean '1f1b'"),  # type: ignore[arg-type]
        ({"how": Discipline(hide_in_stalls="cool")}, "no choice for hide_in_stalls 'cool'"),  # type: ignore[arg-type]
        ({"forward_us": [2**53, 2**53], "microbatches": 10**6}, "give smaller ones"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"forward_us": [1, 1], "backward_us": [2, 2], "microbatches": 2, **change}
    with pytest.raises(InvalidInput, match=words):
        pipeline(**arguments)
    with pytest.raises(InvalidInput, match=words):
        pipeline_makespan_us(**arguments)
