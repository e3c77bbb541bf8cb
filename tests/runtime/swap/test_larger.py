"""A kind whose iterations become larger than those that its policies were made, or not made, for."""

from typing import Any

import msgspec
import pytest

from runtime.swap.generation import Generation
from runtime.swap.policy import Policy
from runtime.swap.profiled import Profiled
from runtime.swap.recurrence import REOPENINGS, SIZES, WAITS
from runtime.swap.sizes import Sizes
from tests.runtime.swap.chain import LAYER_BYTES, STATIC_BYTES
from tests.runtime.swap.controlled import LAYERS, POLICIES, WARM_UP, FakeRecorder, Loop

MIB = 1 << 20
FOUR_TIMES = STATIC_BYTES + 4 * (LAYERS - 4) * LAYER_BYTES
"""What iterations of 4 MiB need a policy for, and such of 1 MiB do not."""
SETTLED = WARM_UP + 1 + POLICIES + 1
"""Iterations until the first one under the policy that is kept."""


@pytest.fixture(autouse=True)
def plain_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine is given policies as they are."""
    monkeypatch.setattr(Policy, "native", lambda policy: policy)


def fitting() -> Loop:
    """A loop that was found to need no policy."""
    loop = Loop(budget_bytes=FOUR_TIMES)
    loop.run(WARM_UP + 6)
    assert loop.control.generations == 1 and loop.engine.policies == []
    return loop


def test_a_kind_that_fitted_gets_a_policy_once_it_no_longer_does() -> None:
    loop = fitting()
    loop.engine.forward_bytes, loop.engine.passive = 4 * MIB, 7
    ran = loop.run(1 + 1 + POLICIES + 2)
    assert [summary.recorded for summary in ran] == [False] + [True] * (1 + POLICIES) + [False] * 2
    assert [summary.policy for summary in ran[:-2]] == [None, None, 0, 1, 2]
    kept = [place for place, result in enumerate(loop.control.results) if result.kept]
    assert [summary.policy for summary in ran[-2:]] == 2 * kept
    assert loop.control.generations == 2
    assert any("did not fit after all" in remark for remark in loop.control.remarks)


def test_a_larger_iteration_that_needs_no_swap_is_not_recorded() -> None:
    loop = fitting()
    loop.engine.forward_bytes = 2 * MIB
    assert not any(summary.recorded for summary in loop.run(10))
    assert loop.control.generations == 1


def test_policies_are_made_from_one_of_the_larger_iterations() -> None:
    """They come by turns with smaller ones, and the one after the first is small."""
    loop = fitting()
    for number in range(16):
        large = number % 3 == 0
        loop.engine.forward_bytes, loop.engine.passive = (4 * MIB, 7) if large else (MIB, 0)
        (summary,) = loop.run(1)
        assert bool(loop.control.results) == (number >= 3)
    assert loop.control.generations == 2 and summary.policy is not None


def test_what_passes_for_fitting_again_and_again_is_not_recorded_for_ever() -> None:
    loop = fitting()
    loop.engine.passive = 7
    ran = loop.run(40)
    assert sum(summary.recorded for summary in ran) == REOPENINGS
    assert loop.control.generations == 1 + REOPENINGS


def settled() -> Loop:
    loop = Loop()
    loop.run(SETTLED)
    assert loop.engine.policy is not None
    return loop


def batches(sizes: list[int], budget_bytes: int = FOUR_TIMES) -> Loop:
    """A loop with batches of these sizes in MiB, of which those of 4 or more do not fit without a policy."""
    loop = Loop(budget_bytes=budget_bytes)
    for size in sizes:
        loop.engine.forward_bytes, loop.engine.passive = size * MIB, 7 if size >= 4 else 0
        loop.run(1)
    return loop


GRADIENTS_BYTES = 5 << 20
"""What an iteration of any size needs beside."""


@pytest.mark.parametrize("small", [1, 0], ids=["a sixteenth", "empty"])
@pytest.mark.parametrize("last", range(SETTLED), ids=str)
def test_a_small_batch_wherever_it_comes_does_not_stand_for_the_others(
    small: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = FakeRecorder.profiled

    def with_gradients(recorder: FakeRecorder, iteration: Any, duration_us: float) -> Profiled:
        profiled = profile(recorder, iteration, duration_us)
        *rest, least = profiled.graph.memory_bytes
        memory = (*(here + GRADIENTS_BYTES for here in rest), least)
        return profiled._replace(graph=msgspec.structs.replace(profiled.graph, memory_bytes=memory))

    monkeypatch.setattr(FakeRecorder, "profiled", with_gradients)
    loop = batches([16] * last + [small] + [16] * (SETTLED + 2), 4 * FOUR_TIMES)
    engine = loop.engine
    assert engine.policy is not None and engine.policy.targets
    assert not any("no policy" in remark for remark in loop.control.remarks)
    assert loop.control.unswapped_peak_bytes == STATIC_BYTES + 16 * LAYERS * LAYER_BYTES + GRADIENTS_BYTES


def test_where_only_small_ones_are_recorded_policies_reach_twice_as_far_and_the_report_says_so() -> None:
    """Until the largest comes again, and is recorded."""
    loop = batches([16, 16, 16, 4, 4, 4, 4, 4], STATIC_BYTES + 5 * (LAYERS - 4) * LAYER_BYTES)
    assert loop.control.unswapped_peak_bytes == STATIC_BYTES + 8 * LAYERS * LAYER_BYTES
    assert any("not recorded yet: passive swaps do the rest" in remark for remark in loop.control.remarks)
    loop.run(POLICIES)
    policy = loop.engine.policy
    loop.engine.forward_bytes = 16 * MIB
    loop.run(2)
    assert policy is not None and loop.engine.policy is not None and loop.engine.policy.bytes > policy.bytes


def test_the_largest_that_hardly_ever_comes_is_not_waited_for_without_end() -> None:
    loop = batches(([16] + [1] * (SIZES + 20)) * 8)
    assert loop.engine.policies == []
    recorded = sum(summary.recorded for summary in loop.summaries)
    assert SIZES < recorded <= (1 + REOPENINGS) * (WAITS + SIZES + 2)


def test_while_larger_ones_are_waited_for_none_is_looked_at_that_tells_nothing_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    profile = FakeRecorder.profiled

    def noted(recorder: FakeRecorder, iteration: Any, duration_us: float) -> Profiled:
        looked.append(iteration.forward_bytes)
        return profile(recorder, iteration, duration_us)

    monkeypatch.setattr(FakeRecorder, "profiled", noted)
    batches([16] + [1] * 40 + [16])
    assert looked == [MIB, 16 * MIB]


LARGER = MIB + MIB // 8


def test_a_policy_made_again_is_for_sizes_that_vary_and_the_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    varied: list[bool] = []
    again = Generation.planned_again

    def noted(generation: Generation, profiled: Profiled, *, anew: bool) -> Policy | None:
        varied.append(generation.varies)
        return again(generation, profiled, anew=anew)

    monkeypatch.setattr(Generation, "planned_again", noted)
    loop = settled()
    loop.engine.forward_bytes = LARGER
    before = len(loop.host_bytes)
    loop.run(3)
    policy = loop.engine.policy
    assert varied == [True, True], "by a line, and as recorded"
    assert policy is not None and policy.on_demand
    assert len(loop.host_bytes) > before and loop.host_bytes[-1] >= policy.host_bytes


def test_the_largest_iteration_is_recorded_once_it_comes_again() -> None:
    """Until then, some of the smaller ones."""
    loop = settled()
    sizes = [LARGER, MIB, MIB, LARGER, MIB, LARGER, LARGER]
    recorded = []
    for size in sizes:
        loop.engine.forward_bytes = size
        recorded += [summary.recorded for summary in loop.run(1)]
    assert recorded == [False, True, True, True, False, False, False]


def test_what_never_comes_again_is_not_waited_for_without_end() -> None:
    loop = settled()
    loop.engine.forward_bytes = LARGER
    loop.run(1)
    loop.engine.forward_bytes = MIB
    assert sum(summary.recorded for summary in loop.run(2 * WAITS)) == WAITS


def test_a_policy_that_spared_too_much_spares_less_the_next_time() -> None:
    loop = settled()
    loop.engine.forward_bytes = LARGER
    loop.run(3)
    policy = loop.engine.policy
    loop.engine.spared, loop.engine.passive = 1, 1
    loop.run(2)
    assert policy is not None and loop.engine.policy == policy.sparing_less(0.98).sparing_less(0.98)
    assert max(target.least_pass_bytes for target in policy.targets) > 0


def test_a_failure_to_make_it_again_leaves_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = settled()
    policy = loop.engine.policy

    def broken(*_: object) -> None:
        raise ValueError("no line through these")

    monkeypatch.setattr(Sizes, "at", broken)
    loop.engine.forward_bytes = LARGER
    loop.run(3)
    assert loop.engine.policy is policy
    assert sum("no line through these" in remark for remark in loop.control.remarks) == 1


def said(loop: Loop, *sizes: int) -> list[str]:
    loop.engine.fallbacks = 9
    for number in range(SIZES // 2):
        loop.engine.forward_bytes = sizes[number % len(sizes)]
        loop.run(1)
    return [remark for remark in loop.control.remarks if "on demand" in remark]


def test_why_tensors_came_back_on_demand_is_said_as_it_is() -> None:
    (steady,) = said(settled(), MIB)
    assert "stay the same" in steady
    (varying,) = said(settled(), MIB + 1, MIB)
    assert "change from one to the next" in varying
    (none,) = said(fitting(), MIB)
    assert "no policy is kept" in none


@pytest.mark.parametrize("kept", [True, False])
def test_a_loop_whose_sizes_come_to_vary_gets_policies_for_that_once(kept: bool) -> None:
    """With a policy for one size, or none, as passive swaps outran it."""
    loop = settled()
    kind = loop.control._kinds.expected
    if not kept:
        kind.policy = kind.place = None
    sizes = [loop.engine.forward_bytes + number % 3 for number in range(3 * SIZES)]
    loop.engine.passive = 1
    for size in sizes:
        loop.engine.forward_bytes, loop.engine.fallbacks = size, 1
        loop.run(1)
    assert loop.control.generations == 2, "policies that serve as badly are no reason to begin again"
    assert kind.policy is not None and kind.policy.on_demand and kind.generation is not None and kind.generation.varies
