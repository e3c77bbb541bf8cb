"""Local search on plans told step by step: what is dropped, what is hidden, and where."""

from collections.abc import Sequence

import pytest

from solvers.ir import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.answers import windows_of
from solvers.recompute.graph.polish import WINDOWS, polish
from solvers.recompute.graph.replay import Instance, instance, replay

Sets = list[set[int]]


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False) -> RecomputeOp:
    return RecomputeOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm)


def step(budget: int, *ops: RecomputeOp) -> Instance:
    return instance(RecomputeGraphProblem(name="step", budget_bytes=budget, static_bytes=0, ops=ops))


def polished(given: Instance, again: dict[int, set[int]], windows: Sequence[int] | None = None) -> dict[int, set[int]]:
    """By stage, what is left of the recomputations; stages without any are left out."""
    sets: Sets = [again.get(t, set()) for t in range(len(given))]
    before = replay(given, sets)
    assert before.violation is None
    found = polish(given, sets, windows_of(given) if windows is None else windows, lambda: False)
    after = replay(given, found)
    assert after.violation is None and after.objective_us <= before.objective_us
    return {t: run for t, run in enumerate(found) if run}


WIDE = (op(5, 4), op(1, 2, 0), op(1, 6, 1), op(1, 1, 2), op(1, 1, 3, 0))
"""Op 0's 4 bytes wait for op 4 across op 2, which with its input needs 8."""


def test_what_there_is_room_to_keep_is_not_computed_again() -> None:
    """12 bytes hold op 0 beside ops 1 and 2; with 11 it must come back in stage 4."""
    assert polished(step(12, *WIDE), {4: {0}}) == {}
    assert polished(step(11, *WIDE), {4: {0}}) == {4: {0}}


def test_the_longer_of_two_is_kept_where_one_fits() -> None:
    """Ops 0 (5 us) and 1 (7 us), 4 bytes each, are read by op 4; beside op 2's 10 bytes there is room for one."""
    given = step(15, op(5, 4), op(7, 4), op(1, 10), op(1, 1, 2), op(1, 1, 0, 1, 3))
    assert polished(given, {4: {0, 1}}) == {4: {0}}


def hiding(*windows: int, budget: int = 9) -> Instance:
    """Op 0 (5 us, 4 bytes) is read by op 1 and by the last op; after op 2 communications of these lengths follow."""
    ops = [op(5, 4), op(1, 1, 0), op(1, 8, 1), op(1, 1, 2)]
    for us in windows:
        ops.append(op(us, 1, len(ops) - 1, comm=True))
    return step(budget, *ops, op(1, 1, 0, len(ops) - 1))


def test_it_goes_behind_the_latest_communication_that_is_long_enough() -> None:
    """Windows of 9, 6, 5 and 4 us in stages 4 to 7; the last op is op 8, where it was paid."""
    given = hiding(9, 6, 5, 4)
    assert polished(given, {8: {0}}) == {6: {0}}
    assert polished(given, {8: {0}}, windows=(4, 5)) == {5: {0}}
    assert polished(given, {8: {0}}, windows=()) == {8: {0}}
    assert polished(hiding(4, 4), {6: {0}}) == {6: {0}}


def test_only_the_nearest_communications_are_tried() -> None:
    """The only long enough one is the twelfth before the last op, or the thirteenth."""
    for count, found in ((WINDOWS, 4), (WINDOWS + 1, 4 + WINDOWS + 1)):
        given = hiding(5, *[4] * (count - 1))
        assert polished(given, {4 + count: {0}}) == {found: {0}}


def test_a_window_holds_as_much_as_it_lasts() -> None:
    """Ops 0 (5 us) and 1 (4 us) come back for op 5; a communication of 9 us hides both, one of 8 the longer one."""
    for us, found in ((9, {4: {0, 1}}), (8, {4: {0}, 5: {1}})):
        given = step(12, op(5, 4), op(4, 4), op(1, 11), op(1, 1, 2), op(us, 1, 3, comm=True), op(1, 1, 0, 1, 4))
        assert polished(given, {5: {0, 1}}) == found


def test_nothing_hides_where_there_is_no_room_for_it() -> None:
    """The communication's own output, 6 bytes, its input and op 0's 4 bytes need 11 while it runs."""
    for budget, found in ((11, {4: {0}}), (10, {5: {0}})):
        ops = (op(5, 4), op(1, 1, 0), op(1, 8, 1), op(1, 1, 2), op(5, 6, 3, comm=True), op(1, 0, 0, 4))
        given = step(budget, *ops)
        assert polished(given, {5: {0}}) == found


def test_a_communication_is_not_hidden_behind_another() -> None:
    given = step(9, op(5, 4, comm=True), op(1, 1, 0), op(1, 8, 1), op(1, 1, 2), op(5, 1, 3, comm=True), op(1, 1, 0, 4))
    assert polished(given, {5: {0}}) == {5: {0}}


def test_what_reads_it_follows_its_input_behind_the_same_communication() -> None:
    """Op 1 (4 us) reads op 0 (3 us), so that it can hide only once op 0 does: a second round finds that 7 us fit."""
    for us, found in ((7, {4: {0, 1}}), (6, {4: {0}, 5: {1}})):
        given = step(13, op(3, 4), op(4, 4, 0), op(1, 12), op(1, 1, 2), op(us, 1, 3, comm=True), op(1, 1, 0, 1, 4))
        assert polished(given, {5: {0, 1}}) == found


@pytest.mark.parametrize("patience", range(4))
def test_it_stops_when_told_with_a_valid_plan(patience: int) -> None:
    given = hiding(9, 6, 5, 4)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(0)
        return len(asked) > patience

    found = polish(given, [*[set[int]()] * 8, {0}], windows_of(given), stop)
    assert replay(given, found).violation is None
    assert len(asked) <= patience + 3
