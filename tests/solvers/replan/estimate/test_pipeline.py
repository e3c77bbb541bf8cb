"""F5 is what a world of stages and messages does; symmetric pipelines in closed form; and where linearity fails."""

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.replan.estimate.pipeline import (
    batch_us,
    every_batch_us,
    pipeline_us,
    row_us,
    rows_us,
    stage_times_us,
)
from solvers.replan.estimate.rounds import IntArray
from solvers.timeline.pipeline.times import pipeline_makespan_us
from tests.solvers.replan.estimate.clockwork import simulated_us
from tests.solvers.replan.estimate.problems import changed


def drawn(rng: random.Random, most_depth: int = 9) -> tuple[list[int], list[int], int]:
    """Stages alike, a little different or wild, some of no length; hops from none to longer than a stage."""
    depth = rng.randint(1, most_depth)
    low, high = rng.choice([(7, 7), (20, 24), (0, 3), (1, 1000)])
    forward = [rng.randint(low, high) for _ in range(depth)]
    backward = [2 * time for time in forward] if rng.random() < 0.5 else [rng.randint(low, high) for _ in range(depth)]
    return forward, backward, rng.choice([0, 0, 1, 13, 400])


def one(times: list[int]) -> IntArray:
    return np.array([times], dtype=np.int64)


def test_the_recurrence_is_the_event_simulation_on_1500_random_pipelines() -> None:
    rng = random.Random(5)
    for _ in range(1500):
        forward, backward, p2p = drawn(rng)
        microbatches = rng.randint(1, 24)
        expected = simulated_us(forward, backward, microbatches, p2p)
        found = batch_us(one(forward), one(backward), np.array([microbatches]), p2p)
        assert found.tolist() == [expected], (forward, backward, microbatches, p2p)


def test_a_row_holds_every_number_of_microbatches_also_far_behind_the_warm_up() -> None:
    rng = random.Random(6)
    for _ in range(60):
        forward, backward, p2p = drawn(rng, most_depth=6)
        row = every_batch_us(one(forward), one(backward), 70, p2p)[0]
        assert row[0] == 0
        for microbatches in (*range(1, 20), 33, 51, 70):
            assert row[microbatches] == simulated_us(forward, backward, microbatches, p2p), (forward, backward, p2p)


def test_pipelines_computed_together_do_not_mix() -> None:
    """Each has its own stage times and microbatches; some have a period, some none yet, some end before it matters."""
    rng = np.random.default_rng(7)
    forward, backward = rng.integers(0, 40, (2, 80, 5))
    forward[::3], backward[::3] = 10, 20
    counts = rng.integers(1, 300, 80)
    together = batch_us(forward, backward, counts, 6)
    for number, microbatches in enumerate(counts):
        alone = pipeline_makespan_us(forward[number], backward[number], microbatches=int(microbatches), p2p_us=6)
        assert together[number] == alone
    rows = every_batch_us(forward, backward, 300, 6)
    assert (rows[np.arange(80), counts] == together).all()


def test_a_pipeline_without_a_period_may_end_before_others_have_theirs() -> None:
    """One has a period and many microbatches; the others have none yet, and need none."""
    rng = np.random.default_rng(7)
    forward, backward = rng.integers(0, 40, (2, 20, 5))
    forward[0], backward[0] = 10, 20
    counts = np.array([300, *rng.integers(1, 14, 19)])
    together = batch_us(forward, backward, counts, 6)
    alone = [batch_us(forward[[k]], backward[[k]], counts[[k]], 6)[0] for k in range(20)]
    assert together.tolist() == alone


def test_the_portions_of_a_large_batch_are_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    forward, backward = rng.integers(1, 50, (2, 37, 4))
    counts = rng.integers(1, 60, 37)
    whole, rows = batch_us(forward, backward, counts, 3), every_batch_us(forward, backward, 60, 3)
    monkeypatch.setattr("solvers.replan.estimate.pipeline.CELLS", 200)
    assert (batch_us(forward, backward, counts, 3) == whole).all()
    assert (every_batch_us(forward, backward, 60, 3) == rows).all()


@pytest.mark.parametrize("depth", range(1, 9))
def test_a_symmetric_pipeline_has_the_closed_form_f3(depth: int) -> None:
    """(m + P − 1)(t_f + t_b), with fewer microbatches than stages too."""
    row = row_us(changed(), (3,) * depth, 40)
    assert row.tolist() == [0, *((m + depth - 1) * 9 for m in range(1, 41))]


def test_messages_make_the_round_trip_the_period() -> None:
    """P microbatches are under way at once: P more cost P stages and 2(P − 1) hops, not evenly spread."""
    row = row_us(changed(p2p_us=5), (2, 2, 2, 2), 60)
    assert set(row[14:] - row[10:-4]) == {4 * 6 + 2 * 3 * 5}
    assert len(set(np.diff(row[10:]))) > 1


def test_beyond_2p_plus_4_a_pipeline_need_not_be_linear() -> None:
    """Stage 0 is 1 us slower than stage 3, but a microbatch's way behind it is idle: it shows after 1,000 microbatches.

    By then a straight line through the first microbatches would be 1 us a microbatch too low for ever.
    """
    forward, backward = one([334, 0, 0, 333]), one([667, 0, 0, 667])
    row = every_batch_us(forward, backward, 4000, 0)[0]
    gains = np.diff(row)
    assert set(gains[1:1000]) == {1000} and set(gains[1001:]) == {1001}
    assert row[4000] == pipeline_makespan_us(forward[0], backward[0], microbatches=4000)
    assert batch_us(forward, backward, np.array([10**6]), 0)[0] == row[4000] + 1001 * (10**6 - 4000)


def steepest_window(total: list[int], p2p: int) -> Fraction:
    """The largest mean over neighbouring stages of their times and the hops of a round trip through them."""
    return max(
        Fraction(sum(total[a : b + 1]) + 2 * p2p * (b - a), b - a + 1)
        for a in range(len(total))
        for b in range(a, len(total))
    )


def test_the_slope_in_the_long_run_is_the_heaviest_round_trip() -> None:
    """The README's formula; the largest stage where nothing is sent, often more where something is."""
    rng = random.Random(9)
    steeper = 0
    for _ in range(60):
        depth, p2p = rng.randint(1, 6), rng.choice([0, 0, 2, 9])
        forward = [rng.randint(1, 30) for _ in range(depth)]
        backward = [rng.randint(1, 30) for _ in range(depth)]
        total = [a + b for a, b in zip(forward, backward, strict=True)]
        far, farther = 60 * 100, 60 * 200  # multiples of all periods up to 6, behind all that passes
        ends = batch_us(one(forward), one(backward), np.array([far]), p2p)[0]
        slope = Fraction(int(batch_us(one(forward), one(backward), np.array([farther]), p2p)[0] - ends), farther - far)
        assert slope == steepest_window(total, p2p)
        assert p2p > 0 or slope == max(total)
        steeper += slope > max(total)
    assert steeper > 5


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_stage_hop_or_microbatch_more_makes_a_pipeline_faster(data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 7))
    lists = st.lists(st.integers(0, 20), min_size=depth, max_size=depth)
    forward, backward, p2p, microbatches = (
        data.draw(lists),
        data.draw(lists),
        data.draw(st.integers(0, 9)),
        data.draw(st.integers(1, 30)),
    )
    before = every_batch_us(one(forward), one(backward), microbatches + 1, p2p)[0]
    assert (np.diff(before) >= 0).all()
    assert (every_batch_us(one(forward), one(backward), microbatches + 1, p2p + 1)[0] >= before).all()
    slower = data.draw(st.integers(0, depth - 1))
    for times in (forward, backward):
        times[slower] += data.draw(st.integers(1, 9))
        after = every_batch_us(one(forward), one(backward), microbatches + 1, p2p)[0]
        assert (after >= before).all()
        before = after


def test_layers_and_extras_make_the_stage_times() -> None:
    problem = changed(first_extra_us=(10, 20), last_extra_us=(100, 200))
    forward, backward = stage_times_us(problem, (3, 2, 4))
    assert forward.tolist() == [13, 2, 104] and backward.tolist() == [26, 4, 208]
    alone_forward, alone_backward = stage_times_us(problem, (9,))
    assert alone_forward.tolist() == [119] and alone_backward.tolist() == [238]
    assert pipeline_us(problem, (9,), 4) == 4 * (119 + 238)


def test_a_row_of_splits_is_the_rows_of_each() -> None:
    problem = changed(p2p_us=2, last_extra_us=(3, 6))
    splits = [(4, 4, 4), (5, 4, 3), (6, 3, 3)]
    rows = rows_us(problem, splits, 25)
    assert rows.shape == (3, 26)
    for row, layers in zip(rows, splits, strict=True):
        assert row.tolist() == row_us(problem, layers, 25).tolist()
        assert [pipeline_us(problem, layers, m) for m in range(1, 26)] == row[1:].tolist()
