"""Memory of pipeline stages over time: a story by hand, and the closed forms of microbatches in flight."""

from itertools import product

import numpy as np
import pytest

from solvers.ir import InvalidInput
from solvers.timeline.pipeline.inputs import Discipline, Hide
from solvers.timeline.pipeline.memory import StageBytes, hiding_fits, in_flight, stage_memory
from solvers.timeline.pipeline.order import Order
from solvers.timeline.pipeline.times import PipelineTimes, pipeline

HELD = StageBytes(static_bytes=100, stored_bytes=10, forward_hidden_bytes=3, working_bytes=5, early_bytes=7)
ROOMY = StageBytes(static_bytes=100, stored_bytes=10, forward_hidden_bytes=3, working_bytes=5, early_bytes=19)


def random_times(seed: int, order: Order, hide: Hide) -> PipelineTimes:
    source = np.random.default_rng(seed)
    depth, count = int(source.integers(1, 6)), int(source.integers(1, 9))
    forward, backward, recompute = source.integers(1, 9, size=(3, depth))
    return pipeline(
        forward,
        backward,
        recompute_us=recompute,
        microbatches=count,
        p2p_us=2,
        how=Discipline(order=order, hide_in_stalls=hide),
    )


def test_two_stages_by_hand() -> None:
    """Stage 0: F0 at 0, F1 (whose windows recompute for B0) at 1, R0 and B0 at 4-7, R1 and B1 at 7-10."""
    first, second = stage_memory(pipeline([1, 1], [2, 2], recompute_us=[1, 0], microbatches=2), [HELD, HELD])
    assert first.levels == ((0, 110), (1, 123), (4, 128), (7, 115), (10, 100))
    assert (first.peak_bytes, first.peak_at_us, first.in_flight) == (128, 4, 2)
    assert second.levels == ((0, 100), (1, 110), (2, 115), (4, 110), (5, 115), (7, 100))
    assert (second.peak_bytes, second.in_flight) == (115, 1)


def test_recomputing_ahead_of_the_gradient_holds_a_whole_stage() -> None:
    """One microbatch: stage 0 recomputes at 1-2, although the gradient comes at 4."""
    times = pipeline([1, 1], [2, 2], recompute_us=[1, 0], microbatches=1, how=Discipline(hide_in_stalls="cooldown"))
    assert stage_memory(times, [HELD, HELD])[0].levels == ((0, 110), (1, 122), (6, 100))


@pytest.mark.parametrize("order", ["1f1b", "gpipe"])
def test_peaks_are_the_closed_forms(order: Order) -> None:
    """static + in flight · stored + forward-hidden + working: the memory line of the layer problem (formats.md 5.3)."""
    for seed in range(150):
        times = random_times(seed, order, "none")
        for stage, found in enumerate(stage_memory(times, [HELD] * times.stages)):
            flight = in_flight(stage, times.stages, times.microbatches, order)
            windows = order == "1f1b" and times.stages - stage <= times.microbatches and stage + 1 < times.stages
            assert found.in_flight == flight
            assert found.peak_bytes == 100 + 10 * flight + (3 if windows else 0) + 5, seed
            assert found.levels[-1] == (int(times.backward_end_us[stage].max()), 100)
            moments = [time for time, _ in found.levels]
            assert moments == sorted(set(moments))


def test_where_hiding_fits_the_peak_stays_within_the_budget() -> None:
    """And the check asks for no more than needed: some steps need the last byte of it."""
    needed = set()
    cases: list[tuple[Order, Hide]] = [("1f1b", "cooldown"), ("1f1b", "all"), ("gpipe", "cooldown"), ("gpipe", "all")]
    for seed, (order, hide) in product(range(150), cases):
        times = random_times(seed, order, hide)
        stages = [ROOMY] * times.stages
        hidden, plain = stage_memory(times, stages), stage_memory(random_times(seed, order, "none"), stages)
        for stage in range(times.stages):
            peak, base = hidden[stage].peak_bytes, plain[stage].peak_bytes
            for budget in range(base, peak):
                assert not hiding_fits(stages, times.microbatches, budget, hide, order)[stage]
            if peak > base and hiding_fits(stages, times.microbatches, peak, hide, order)[stage]:
                needed.add((order, hide))
    assert needed == set(cases)


def test_in_the_cool_down_the_room_of_one_microbatch_is_free() -> None:
    """Recomputing ahead in the cool-down costs nothing if that is no more than what a microbatch stores."""
    for seed in range(100):
        hidden, plain = random_times(seed, "1f1b", "cooldown"), random_times(seed, "1f1b", "none")
        if plain.microbatches < plain.stages:
            continue
        peaks = [[one.peak_bytes for one in stage_memory(times, [HELD] * times.stages)] for times in (hidden, plain)]
        assert peaks[0] == peaks[1], seed
    assert hiding_fits([HELD, HELD], 4, 122, "cooldown") == (True, True)
    assert hiding_fits([HELD, HELD], 4, 121, "cooldown") == (False, True)
    assert hiding_fits([HELD, HELD], 4, 10**9, "none") == (False, False)


def test_batches_and_wrong_numbers_of_stages_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the times are of a batch of shape"):
        stage_memory(pipeline([[1, 1]], [[2, 2]], microbatches=2), [HELD, HELD])
    with pytest.raises(InvalidInput, match="bytes of 1 stages for a pipeline of 2"):
        stage_memory(pipeline([1, 1], [2, 2], microbatches=2), [HELD])
