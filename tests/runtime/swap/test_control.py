"""From boundary to boundary: what is recorded, executed, measured and kept, and when a policy is given up."""

from dataclasses import replace

import pytest

from runtime.swap import control
from runtime.swap.policy import Policy
from runtime.swap.report import IterationSummary
from runtime.swap.stages import StageSettings
from solvers.ir.amounts import show_bytes
from tests.runtime.swap.chain import (
    BACKWARD_ID,
    FORWARD_ID,
    LAYER_BYTES,
    STATIC_BYTES,
    UPDATE_ID,
    chain_operators,
)
from tests.runtime.swap.controlled import BUDGET_BYTES, DEEPER, LAYERS, POLICIES, STAGES, WARM_UP, Loop


@pytest.fixture(autouse=True)
def plain_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine is given policies as they are."""
    monkeypatch.setattr(Policy, "native", lambda policy: policy)


def test_stages_follow_each_other_and_each_policy_runs_once_before_the_best_stays() -> None:
    loop = Loop()
    ran = loop.run(WARM_UP + 1 + POLICIES + 2)
    assert [summary.stage for summary in ran] == ["WarmUp"] * 3 + ["GenPolicy"] * 3 + ["Stable"] * 3
    assert [summary.policy for summary in ran] == [None] * 4 + [0, 1, 2] + [1, 1]
    assert [summary.recorded for summary in ran] == [False] * 3 + [True] * 4 + [False] * 2
    assert loop.engine.sighted == [summary.recorded for summary in ran]
    assert [result.duration_us for result in loop.control.results] == [3100.0, 3000.0, 3100.0]
    assert loop.engine.policy is loop.engine.policies[1]


def test_features_are_ranked_by_frequency_before_anything_is_sighted() -> None:
    loop = Loop()
    loop.run(WARM_UP - 1)
    assert loop.engine.ranks == []
    loop.run(1, [7, 7, 7, 2, 2, 9] * 4 + chain_operators(LAYERS)[:1])
    assert loop.engine.ranks == []  # another sequence: the warm-up begins anew
    loop.run(WARM_UP, [7, 7, 7, 2, 2, 9])
    loop.run(1, [7, 7, 7, 2, 2, 9])
    assert loop.engine.ranks == [[7, 2, 9]]


SETTLED = WARM_UP + 1 + POLICIES + 1
"""Iterations until the first one under the policy that is kept."""
LONGER = chain_operators(LAYERS) + [1] * 20


@pytest.mark.parametrize("stages", [replace(STAGES, remembered=0), replace(STAGES, printed=True)])
def test_another_sequence_drops_the_policy_and_begins_a_new_generation(stages: StageSettings) -> None:
    settled = SETTLED + stages.printed
    loop = Loop(stages=stages)
    assert loop.run(settled)[-1].policy == 1
    (changed,) = loop.run(1, LONGER)
    assert changed.policy == 1
    assert loop.engine.policy is None
    ran = loop.run(1 + settled)
    assert ran[0].stage == "WarmUp"
    assert loop.control.generations == 2
    assert [result.generation for result in loop.control.results] == [1] * 3 + [2] * 3
    assert ran[-1].policy == 4
    assert loop.control.returns == 0


def test_a_sequence_that_comes_again_has_its_policy_at_once() -> None:
    """A validation lengthens one iteration: the policy goes on, and nothing is made anew."""
    loop = Loop()
    loop.run(SETTLED)
    ran = [*loop.run(1, LONGER), *loop.run(3)]
    assert [summary.stage for summary in ran] == ["Stable", "WarmUp", "Stable", "Stable"]
    assert [summary.policy for summary in ran] == [1] * 4
    assert (loop.control.generations, loop.control.returns) == (1, 1)
    assert loop.engine.ranks == loop.engine.ranks[:1]


def test_each_of_two_sequences_has_its_own_policy() -> None:
    loop = Loop()
    loop.run(SETTLED)
    deeper = loop.run(1 + SETTLED, DEEPER)
    assert [summary.policy for summary in deeper[:3]] == [1, 1, None], "a change may pass, but this one stays"
    assert deeper[-1].policy == 4
    back, there = loop.run(3), loop.run(3, DEEPER)
    assert [summary.policy for summary in back] == [4, 1, 1]
    assert [summary.policy for summary in there] == [1, 4, 4]
    assert (loop.control.generations, loop.control.returns) == (2, 2)
    chain, other = [FORWARD_ID, BACKWARD_ID, UPDATE_ID], [BACKWARD_ID, FORWARD_ID, UPDATE_ID]
    assert loop.engine.ranks == [chain, other, chain, other], "features are made as those of the policy's tensors were"


def test_a_sequence_that_needs_no_policy_is_remembered_too() -> None:
    loop = Loop(budget_bytes=1 << 40)
    loop.run(WARM_UP + 6)
    ran = [*loop.run(1, LONGER), *loop.run(2)]
    assert [summary.recorded for summary in ran] == [False] * 3
    assert ran[-1].stage == "Stable"
    assert loop.control.generations == 1


def test_the_sequence_unused_for_longest_is_forgotten() -> None:
    loop = Loop(stages=replace(STAGES, remembered=1))
    loop.run(SETTLED)
    loop.run(1 + SETTLED, LONGER)
    loop.run(1 + SETTLED)
    assert loop.control.generations == 3


OTHER = [9] * LAYERS + [11] * LAYERS + [UPDATE_ID]
"""Another network's step, say."""


def in_turns(loop: Loop, pattern: str, iterations: int) -> list[IterationSummary]:
    """`a` stands for the chain, `b` for other operators."""
    for number in range(iterations):
        letter = pattern[number % len(pattern)]
        loop.run(1, OTHER if letter == "b" else None)
    return loop.summaries


@pytest.mark.parametrize("pattern", ["ab", "aab", "abb", "aaaaab"])
def test_a_loop_that_never_settles_has_a_policy_for_each_kind_of_iteration(pattern: str) -> None:
    loop = Loop()
    needed = (WARM_UP + 1 + 1 + POLICIES + 3) * len(pattern)
    summaries = in_turns(loop, pattern, needed + 4 * len(pattern))
    kept = [place for place, result in enumerate(loop.control.results) if result.kept]
    assert len(kept) == len(set(pattern)) == loop.control.generations
    last = summaries[-2 * len(pattern) :]
    assert {summary.stage for summary in last} == {"Stable"}
    for letter in set(pattern):
        ran = {summary.policy for number, summary in enumerate(last) if pattern[number % len(pattern)] == letter}
        assert len(ran) == 1 and ran <= set(kept), "each kind under its own policy"
    assert {summary.policy for summary in last} == set(kept)
    assert not any(summary.recorded for summary in last)


def test_algorithm_1_alone_never_settles_on_such_a_loop() -> None:
    loop = Loop(stages=replace(STAGES, remembered=0))
    summaries = in_turns(loop, "aab", 60)
    assert {summary.stage for summary in summaries} == {"WarmUp"}
    assert loop.control.results == []


def test_a_policy_is_measured_only_in_iterations_of_its_kind() -> None:
    """One of another kind comes where its trial was expected: the trial is repeated."""
    loop = Loop()
    loop.run(WARM_UP + 1)
    ran = [*loop.run(1, OTHER), *loop.run(2 + POLICIES)]
    assert [summary.policy for summary in ran] == [0, None, 0, 1, 2, 1]
    assert [result.duration_us for result in loop.control.results] == [3100.0, 3000.0, 3100.0]
    assert (loop.control.generations, loop.control.returns) == (1, 0)


def test_a_policy_that_stands_goes_on_in_a_kind_that_has_none_yet() -> None:
    loop = Loop()
    loop.run(SETTLED)
    ran = in_turns(loop, "ab", 2 * (WARM_UP + 1))[SETTLED:]
    assert [summary.policy for summary in ran] == [1] * len(ran)
    twice = Loop()
    twice.run(SETTLED)
    assert [summary.policy for summary in twice.run(3, OTHER)] == [1, 1, None], "but for one iteration only"


def test_results_keep_their_places_while_two_kinds_are_in_generation() -> None:
    loop = Loop()
    for number, summary in enumerate(in_turns(loop, "ab", 40)):
        if summary.policy is not None:
            result = loop.control.results[summary.policy]
            assert result.generation == 1 + number % 2
            assert result.duration_us == summary.duration_us or result.kept


def test_a_change_in_the_midst_of_a_generation_measures_nothing_more() -> None:
    loop = Loop()
    loop.run(WARM_UP + 1 + 1)
    loop.run(1, [1] * 40)
    assert loop.engine.policy is None
    assert [result.duration_us for result in loop.control.results] == [3100.0, None]
    assert not any(result.kept for result in loop.control.results)
    assert not loop.recorders[-1].running


def test_a_small_change_keeps_the_policy() -> None:
    loop = Loop()
    loop.run(WARM_UP + 1 + POLICIES + 1)
    ran = loop.run(3, [*chain_operators(LAYERS), 7])
    assert [summary.stage for summary in ran] == ["Stable"] * 3
    assert loop.engine.policy is loop.engine.policies[1]


def test_what_fits_is_recorded_once_and_left_alone() -> None:
    loop = Loop(budget_bytes=1 << 40)
    ran = loop.run(WARM_UP + 6)
    assert [summary.recorded for summary in ran] == [False] * 3 + [True] + [False] * 5
    assert loop.engine.policies == []
    assert any("nothing is swapped" in remark for remark in loop.control.remarks)
    assert loop.control.unswapped_peak_bytes == STATIC_BYTES + LAYERS * LAYER_BYTES


def test_a_budget_that_no_policy_reaches_needs_passive_swaps_too() -> None:
    loop = Loop(budget_bytes=STATIC_BYTES)
    loop.run(WARM_UP + 6)
    assert loop.engine.policy is not None
    assert any("passive swaps do the rest" in remark for remark in loop.control.remarks)


def test_an_iteration_that_could_not_be_profiled_is_made_up_for() -> None:
    loop = Loop(broken_recorders=1)
    ran = loop.run(WARM_UP + 2 + POLICIES + 1)
    assert [summary.policy for summary in ran] == [None] * 5 + [0, 1, 2] + [1]
    assert any("different operators" in remark for remark in loop.control.remarks)


def test_a_recording_that_gives_way_to_a_profiler_is_made_up_for() -> None:
    loop = Loop()
    loop.run(WARM_UP + 1)
    loop.control.give_way()
    assert not loop.recorders[-1].running
    ran = loop.run(1 + POLICIES + 1)
    assert [summary.policy for summary in ran] == [0, 0, 1, 2, 1]
    assert [summary.recorded for summary in ran] == [False, True, True, True, False]
    assert any("torch.profiler" in remark for remark in loop.control.remarks)


def test_a_profiler_that_never_agrees_is_not_asked_for_ever() -> None:
    loop = Loop(broken_recorders=100)
    loop.run(30)
    assert len(loop.recorders) == POLICIES


def test_a_rest_in_the_midst_of_an_iteration_decides_nothing() -> None:
    loop = Loop()
    loop.run(WARM_UP + 1 + POLICIES + 1)
    loop.engine.operators = [1, 2]
    assert loop.control.interrupt()
    loop.control.begin(whole=False)
    (half,) = loop.run(1, [1])
    assert half.stage == "Stable"
    assert loop.run(1)[0].stage == "Stable"
    assert loop.engine.policy is loop.engine.policies[1]


def test_a_rest_while_a_policy_is_tried_tries_it_again() -> None:
    loop = Loop()
    loop.run(WARM_UP + 1)
    assert not loop.control.interrupt()
    assert not loop.recorders[-1].running
    loop.control.begin(whole=True)
    ran = loop.run(POLICIES + 1)
    assert [summary.policy for summary in ran] == [0, 1, 2, 1]


def test_only_every_kth_iteration_is_compared_once_a_policy_is_kept() -> None:
    loop = Loop(sample_every=4)
    ran = loop.run(WARM_UP + 1 + POLICIES + 1)
    assert [summary.policy for summary in ran][-4:] == [0, 1, 2, 1]
    stable = sum(summary.stage == "Stable" for summary in ran)
    other = [1] * 40
    told = [summary.stage for summary in loop.run(5, other)]
    assert told.index("WarmUp") == 4 - stable % 4


def test_while_kinds_take_turns_every_iteration_is_compared() -> None:
    """What is expected is a guess, which must not confirm itself."""
    turns, every = Loop(sample_every=4), Loop()
    for loop in (turns, every):
        in_turns(loop, "ab", 60)
        loop.run(6)
    assert [ran.policy for ran in turns.summaries] == [ran.policy for ran in every.summaries]
    assert turns.control.returns == every.control.returns
    assert len({ran.policy for ran in turns.run(4)}) == 1


def test_policies_and_remarks_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LISTED", 4)
    loop = Loop(stages=replace(STAGES, remembered=0))
    for number in range(5):
        ran = loop.run(1 + SETTLED, DEEPER if number % 2 else None)
    assert [result.generation for result in loop.control.results] == [4] + [5] * POLICIES
    assert [result.kept for result in loop.control.results] == [False, False, True, False]
    assert ran[-1].policy == 4 * POLICIES + 1, "counted from the first"
    for amount in (5 << 10, 7 << 20, 9 << 30):
        loop.control.remark(f"some policy needs {show_bytes(amount)}")
    assert loop.control.remarks[-1] == "some policy needs 5120 bytes (5.00 KiB)"


def test_two_boundaries_without_an_operator_between_are_one() -> None:
    loop = Loop()
    loop.run(2)
    loop.control.end()
    assert loop.control.iterations == 2


def test_sums_and_maxima_run_through_all_iterations() -> None:
    loop = Loop()
    ran = loop.run(WARM_UP + 1 + POLICIES + 2)
    assert loop.control.counts.swapped_out == sum(summary.counts.swapped_out for summary in ran) > 0
    assert loop.control.peak_bytes == BUDGET_BYTES
    assert loop.control.host_peak_bytes == 5
    assert loop.control.unplanned_us == 5000.0


def test_what_swapping_costs_is_told_beside_iterations_without() -> None:
    """Of the kind that ran last: 3000 us under the policy kept, 5000 us in the fake engine's passive iterations."""
    loop = Loop()
    assert loop.control.cost() is None
    loop.run(SETTLED + 8)
    cost = loop.control.cost()
    assert cost is not None
    assert (cost.step_us, cost.without_us, cost.how) == (3000.0, 5000.0, "measured")
    loop.run(1, OTHER)
    assert loop.control.cost() is None or loop.control.cost() != cost
