"""Algorithm 1: what counts as the same operator sequence, and which stage follows."""

import time
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.swap.stages import Sampling, Similarity, Stage, StageMachine, StageSettings, similarity
from solvers.ir.errors import InvalidInput

WARM_UP, GEN_POLICY, STABLE = Stage.WARM_UP, Stage.GEN_POLICY, Stage.STABLE

FORWARD = [1, 2, 3, 4, 2, 3, 5] * 40
BACKWARD = [6, 7, 8, 9, 7, 8] * 80
OPTIMIZER = [10, 11, 12, 13] * 30
STEP = FORWARD + BACKWARD + OPTIMIZER
SKIPPED = FORWARD + BACKWARD
"""Loss scaling found an infinity: the optimizer's operators are missing, 13.5 % of the step."""
VALIDATED = STEP + FORWARD * 4

sequences = st.lists(st.integers(0, 30), max_size=200)


def stages(machine: StageMachine, runs: Sequence[list[int]]) -> list[Stage]:
    """The stage after each of the iterations."""
    return [machine.advance(run) for run in runs]


def lengths(found: Sequence[Stage]) -> list[tuple[Stage, int]]:
    """Equal stages in a row, with their number."""
    return [(stage, len(list(run))) for stage, run in groupby(found)]


def test_a_steady_program_warms_up_makes_n_policies_and_stays_stable() -> None:
    machine = StageMachine()
    running = [machine.stage, *stages(machine, [STEP] * 20)]
    assert lengths(running) == [(WARM_UP, 3), (GEN_POLICY, 5), (STABLE, 13)]


def test_as_printed_there_is_one_policy_more_than_the_text_says() -> None:
    machine = StageMachine(StageSettings(printed=True))
    running = [machine.stage, *stages(machine, [STEP] * 20)]
    assert lengths(running) == [(WARM_UP, 3), (GEN_POLICY, 6), (STABLE, 12)]


def test_a_skipped_optimizer_step_starts_the_warm_up_again_and_so_does_the_step_after_it() -> None:
    machine = StageMachine()
    stages(machine, [STEP] * 12)
    assert machine.stage is STABLE
    running = stages(machine, [SKIPPED, *[STEP] * 12])
    assert lengths(running) == [(WARM_UP, 4), (GEN_POLICY, 5), (STABLE, 4)]


def test_a_validation_pass_in_the_midst_of_making_policies_starts_anew() -> None:
    machine = StageMachine()
    assert stages(machine, [STEP] * 5)[-1] is GEN_POLICY
    assert machine.stable_steps == 2
    assert machine.advance(VALIDATED) is WARM_UP
    assert (machine.stable_steps, machine.last) == (0, similarity(STEP, VALIDATED))


def test_a_branch_of_few_operators_is_left_to_the_matching() -> None:
    machine = StageMachine()
    stages(machine, [STEP] * 12)
    branch = [*STEP[:100], 5, 5, 3, *STEP[100:]]
    assert stages(machine, [branch, STEP, branch]) == [STABLE] * 3
    assert machine.last is not None and machine.last.cosine > 0.99


def test_the_histogram_sees_no_order_and_the_printed_cosine_little_else() -> None:
    backwards = STEP[::-1]
    assert similarity(STEP, backwards) == Similarity(0.0, 1.0, True)
    printed = similarity(STEP, backwards, StageSettings(printed=True))
    assert not printed.similar and printed.cosine < 0.9


def test_one_operator_early_on_shifts_the_printed_vectors_apart() -> None:
    """How far depends on the numbers that the operators happen to have."""
    steady = [1, 90, 4, 70, 2] * 100
    shifted = [3, *steady]
    assert similarity(steady, shifted).similar
    assert similarity(steady, shifted, StageSettings(printed=True)).cosine < 0.1


def test_the_printed_cosine_of_unequal_lengths_takes_the_shorter_to_end_in_zeros() -> None:
    compared = similarity([3, 4], [3, 4, 12], StageSettings(printed=True, length_tolerance=1))
    assert compared == Similarity(0.5, 25 / (5 * 13), False)


def test_both_bounds_are_strict() -> None:
    """The text says "by more than 5 %", the algorithm "< 5 %"."""
    hundred = [1] * 100
    assert similarity(hundred, [1] * 104).similar
    assert not similarity(hundred, [1] * 105).similar
    assert not similarity(hundred, [1] * 95).similar
    half = StageSettings(least_cosine=0.6)
    assert not similarity([1] * 3 + [2] * 4, [1] * 5, StageSettings(length_tolerance=1, least_cosine=0.6)).similar
    assert similarity([1] * 3 + [2] * 4, [1] * 7, StageSettings(least_cosine=0.59)).similar
    assert not similarity([1] * 3 + [2] * 4, [1] * 7, half).similar


def test_iterations_without_operators_compare_too() -> None:
    assert similarity([], []) == Similarity(0.0, 1.0, True)
    assert not similarity([], [1]).similar
    assert similarity([1], []) == Similarity(1.0, 0.0, False)


@given(sequences, st.randoms())
def test_permuted_operators_are_the_same_sequence(sequence: list[int], random: object) -> None:
    shuffled = list(sequence)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert similarity(sequence, shuffled) == Similarity(0.0, 1.0, True)


@given(sequences, sequences, st.booleans())
def test_the_cosine_is_symmetric_and_one_for_a_sequence_itself(a: list[int], b: list[int], printed: bool) -> None:
    settings = StageSettings(printed=printed)
    assert similarity(a, b, settings).cosine == similarity(b, a, settings).cosine
    assert similarity(a, a, settings).similar
    assert -1e-12 <= similarity(a, b, settings).cosine <= 1 + 1e-12


@given(sequences, sequences)
def test_the_default_cosine_is_that_of_the_counts(a: list[int], b: list[int]) -> None:
    left, right = np.zeros(31), np.zeros(31)
    for counts, sequence in ((left, a), (right, b)):
        for operator in sequence:
            counts[operator] += 1
    norm = float(np.linalg.norm(left) * np.linalg.norm(right))
    expected = float(left @ right) / norm if norm > 0 else float(a == b)
    assert similarity(a, b).cosine == pytest.approx(expected)


@given(st.lists(st.sampled_from([STEP, SKIPPED, VALIDATED]), max_size=40), st.booleans())
def test_every_path_sets_the_stage_as_the_algorithm_does_line_by_line(runs: list[list[int]], printed: bool) -> None:
    """Algorithm 1 written down as it stands, with Stage kept where no line sets it."""
    m, n = 2, 5
    machine = StageMachine(StageSettings(warm_up_iterations=m, policies=n, printed=printed))
    stable_step, previous_stage, previous = 0, WARM_UP, runs[0] if runs else []
    for run in runs:
        stage = previous_stage
        if similarity(previous, run, machine.settings).similar:
            stable_step = stable_step + 1
            if previous_stage is WARM_UP and stable_step > m:
                stage, stable_step = GEN_POLICY, 0
            elif previous_stage is GEN_POLICY and (stable_step > n if printed else stable_step >= n):
                stage = STABLE
        else:
            stage, stable_step = WARM_UP, 0
        previous_stage, previous = stage, run
        assert machine.advance(run) is stage
        assert machine.stable_steps == stable_step


@given(st.integers(0, 4), st.integers(1, 6), st.integers(0, 30))
def test_n_policies_whatever_m_and_n(m: int, n: int, more: int) -> None:
    machine = StageMachine(StageSettings(warm_up_iterations=m, policies=n))
    found = stages(machine, [STEP] * (m + n + 1 + more))
    assert found.count(GEN_POLICY) == n
    assert found[-1] is STABLE


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"warm_up_iterations": -1}, "warm_up_iterations is -1: give 0 or more"),
        ({"policies": 0}, "policies is 0: give 1 or more"),
        ({"policies": 10**9}, "policies is 1000000000: give 1 or more, up to 1000"),
        ({"printed": "yes"}, "printed is 'yes': give True or False"),
        ({"policies": 2.5}, "policies is 2.5: give a whole number"),
        ({"least_cosine": "95%"}, "least_cosine is '95%': give a number"),
        ({"length_tolerance": 0.0}, "length_tolerance is 0.0: give a fraction above 0"),
        ({"length_tolerance": float("nan")}, "length_tolerance is nan"),
        ({"least_cosine": 1.0}, "least_cosine is 1.0: give a number from 0 to below 1"),
    ],
)
def test_settings_that_could_never_be_met_are_refused(change: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        StageSettings(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[1, -2], [1 << 20], [[1], [2]]])
def test_what_is_no_operator_is_refused_and_changes_nothing(ids: list[int]) -> None:
    machine = StageMachine()
    stages(machine, [STEP] * 5)
    with pytest.raises(InvalidInput, match=r"no operator's id|dimensions"):
        machine.advance(ids)
    assert machine.advance(STEP) is GEN_POLICY
    assert machine.stable_steps == 3


def test_sampling_skips_iterations_only_while_a_policy_stands() -> None:
    sampling = Sampling(every=3)
    assert all(sampling.due(stage, number) for stage in (WARM_UP, GEN_POLICY) for number in range(5))
    assert [sampling.due(STABLE, number) for number in range(6)] == [False, False, True, False, False, True]
    assert all(Sampling().due(STABLE, number) for number in range(3))
    with pytest.raises(InvalidInput, match="every is 0"):
        Sampling(every=0)


def test_comparing_twenty_thousand_operators_takes_well_under_a_millisecond() -> None:
    first = np.arange(20_000, dtype=np.uint32) * 7919 % 150
    other = np.roll(first, 5)
    other[::1000] += 1
    for settings in (StageSettings(), StageSettings(printed=True)):
        machine = StageMachine(settings)
        machine.advance(first)
        took = []
        for _ in range(25):
            for run in (other, first):
                begin = time.process_time()
                machine.advance(run)
                took.append(time.process_time() - begin)
        assert min(took) < 500e-6, settings
