"""Which iterations are of one kind, and which kind comes next."""

import gc
import random
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.swap.generation import Generation
from runtime.swap.past import PAST
from runtime.swap.recurrence import SIZES, Kind, Kinds
from runtime.swap.stages import Stage, StageMachine, StageSettings
from tests.runtime.swap.chain import hardware
from tests.runtime.swap.test_generation import CHOICES

BYTES = 1000


def see(kinds: Kinds, operators: Sequence[int], forward_bytes: int = BYTES) -> Kind:
    """An iteration ends."""
    kind = kinds.sort(np.array(operators, dtype=np.int64), forward_bytes)
    kinds.follow(kind)
    return kind


def settle(kinds: Kinds, kind: Kind) -> None:
    """As where its policy was chosen."""
    kind.generation = Generation(1, CHOICES, hardware(), 1)
    kind.generation.open = False
    kinds.settle()


def test_alike_are_operators_by_algorithm_1s_condition() -> None:
    kinds = Kinds(StageSettings())
    first = see(kinds, [1, 2] * 20)
    assert see(kinds, [2, 1] * 20) is first, "the order does not count"
    assert see(kinds, [1, 2] * 20 + [3]) is first
    longer = see(kinds, [1, 2] * 20 + [3] * 4)
    assert longer is not first, "longer by 7 %"
    assert see(kinds, [1, 3] * 20) not in (first, longer)
    assert see(kinds, [1, 2] * 20) is first


def test_like_operators_are_of_one_kind_whatever_their_sizes() -> None:
    rng = random.Random(5)
    kinds = Kinds(StageSettings())
    seen = [see(kinds, [1, 2] * 20, rng.randrange(1000, 9000)) for _ in range(100)]
    assert len({id(kind) for kind in seen}) == 1 and seen[0].varies
    assert seen[0].largest == max(seen[0].sizes) and len(seen[0].sizes) == SIZES
    assert seen[0].shares[-1] == 1.0 and seen[0].shares[0] == min(seen[0].sizes) / seen[0].largest
    steady = Kinds(StageSettings())
    assert not [see(steady, [1, 2] * 20, size) for size in (1000, 1000, 1000, 1049, 1049)][-1].varies
    assert see(steady, [1, 2] * 20, 1051).varies


def test_where_most_sizes_differ_by_little_a_kind_varies_too() -> None:
    """As where tokens are routed: the sum stays nearly the same."""
    kinds = Kinds(StageSettings())
    assert [see(kinds, [1, 2] * 20, size).varies for size in (1000, 1001, 1001, 1000)] == [False, True, False, True]


def test_an_iteration_is_compared_with_the_latest_of_its_kind() -> None:
    """Algorithm 1 compares neighbours, so that a sequence may drift; another kind between them changes nothing."""
    kinds = Kinds(StageSettings())
    drifting = [1, 2] * 40
    first = see(kinds, drifting)
    for more in range(30):
        see(kinds, [9] * 5)
        assert see(kinds, drifting + [1, 2] * more) is first


@given(st.lists(st.sampled_from([(1, 2) * 20, (1, 2) * 20 + (3,), (4, 5) * 9]), max_size=30), st.booleans())
def test_without_a_memory_algorithm_1_alone_decides(sequences: list[tuple[int, ...]], printed: bool) -> None:
    settings = StageSettings(remembered=8, printed=True) if printed else StageSettings(remembered=0)
    kinds, machine = Kinds(settings), StageMachine(settings)
    for number, operators in enumerate(sequences):
        see(kinds, operators, BYTES * (1 + number))
        machine.advance(operators)
        assert (kinds.expected.stage, kinds.last) == (machine.stage, machine.last)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3), st.integers(1, 5))
def test_a_loop_that_settles_goes_through_the_stages_of_algorithm_1(once: int, then: int, m: int, n: int) -> None:
    """Also where it settles on something else later: one kind at a time."""
    settings = StageSettings(warm_up_iterations=m, policies=n)
    kinds, machine = Kinds(settings), StageMachine(settings)
    for operators in [[1, 2] * 20] * once + [[4, 5] * 9] * then:
        kind = see(kinds, operators)
        machine.advance(operators)
        assert (kind.stage, kinds.last) == (machine.stage, machine.last)


def test_kinds_that_alternate_pass_their_warm_ups_side_by_side() -> None:
    kinds = Kinds(StageSettings(warm_up_iterations=2))
    stages = [see(kinds, operators).stage for operators in [[1, 2] * 20, [4, 5] * 9] * 4]
    assert [stage is Stage.GEN_POLICY for stage in stages] == [False] * 4 + [True, False, True, True]


PATTERNS = ["aab", "ab", "abc", "aaaaaaaaab", "aabbc", "abacabad", "a" * 41 + "b"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_foreseen_once_it_has_come_twice(pattern: str) -> None:
    kinds = Kinds(StageSettings(remembered=8))
    hits = 0
    for number, letter in enumerate(pattern * 5):
        expected = kinds.expected
        found = see(kinds, [ord(letter)] * 20)
        if number >= 3 * len(pattern):
            hits += found is expected
    assert hits == 2 * len(pattern)


def test_what_comes_rarely_is_not_expected() -> None:
    """A validation every 200 steps: the step after it is like those before, and so is every other."""
    kinds = Kinds(StageSettings())
    wrong = []
    for number in range(1000):
        operators = [7] * 30 if number % 200 == 199 else [1, 2] * 20
        expected = kinds.expected
        if see(kinds, operators) is not expected:
            wrong.append(number)
    assert wrong == [199, 200, 399, 599, 799, 999]  # only the first surprise lasts


def test_without_a_pattern_the_most_frequent_is_expected_mostly() -> None:
    rng = random.Random(3)
    kinds = Kinds(StageSettings())
    expected = []
    for _ in range(600):
        expected.append(kinds.expected)
        often = see(kinds, [1] * 20 if rng.random() < 0.8 else [2] * 20)
    del often
    frequent = max(set(expected), key=expected.count)
    assert expected.count(frequent) > 0.8 * len(expected)


def test_the_settled_kind_unused_for_longest_goes_first() -> None:
    kinds = Kinds(StageSettings(remembered=2))
    first, second = see(kinds, [1]), see(kinds, [2])
    settle(kinds, first)
    settle(kinds, second)
    assert see(kinds, [1]) is first
    settle(kinds, see(kinds, [3]))
    assert see(kinds, [1]) is first
    assert see(kinds, [2]) is not second


def test_what_never_comes_again_drives_out_nothing_that_is_settled() -> None:
    kinds = Kinds(StageSettings(remembered=2))
    first = see(kinds, [1])
    settle(kinds, first)
    for other in range(2, 40):
        see(kinds, [other] * 20)
    assert see(kinds, [1]) is first


def test_what_was_forgotten_takes_no_memory() -> None:
    kinds = Kinds(StageSettings(remembered=2))
    seen = [weakref.ref(see(kinds, [1]))]
    settle(kinds, kinds.expected)
    seen += [weakref.ref(see(kinds, [other] * 20)) for other in range(2, 2000)]
    gc.collect()
    alive = [one() is not None for one in seen]
    assert alive[0]
    assert sum(alive) <= PAST + 1 + 2


def test_what_was_forgotten_is_not_expected() -> None:
    kinds = Kinds(StageSettings(remembered=1))
    for _ in range(20):
        for operators in ([1], [2], [3]):
            ended = see(kinds, operators)
            assert kinds.expected is ended, "of one kind at a time nothing else can follow"


def test_where_sizes_vary_operators_may_come_and_go_with_them() -> None:
    """An expert without tokens has no operators; another pass, or another phase, is another kind."""
    train, twice = [0] * 20 + [2] * 20 + [3] * 4, [0] * 10 + [2] * 10 + [0] * 10 + [2] * 10 + [3] * 4
    operators = [1, 2] * 22

    def ended(kinds: Kinds, ids: list[int], size: int, phases: list[int]) -> Kind:
        return kinds.sort(np.array(ids, dtype=np.int64), size, bytes(phases))

    for sizes, shared in (((1000, 1010, 1005), True), ((1000, 1000, 1000), False)):
        kinds = Kinds(StageSettings(warm_up_iterations=1))
        first = [ended(kinds, operators, size, train) for size in sizes][-1]
        assert (ended(kinds, operators[8:], 990, train[8:]) is first) == shared
        assert (ended(kinds, operators, 1000, train) is first) and first.stage is Stage.GEN_POLICY
        assert ended(kinds, operators[16:], 1000, train[16:]) is not first, "shorter by more than a quarter"
        assert ended(kinds, operators[4:], 1000, twice[4:]) is not first
        assert ended(kinds, operators[4:], 1000, [0] * 20 + [2] * 20) is not first
        assert ended(kinds, [1] * 40, 1000, train[4:]) is not first
