"""Operators and lookalikes are counted from first uses of parameters: what is left out shifts nothing behind it."""

from collections.abc import Sequence
from typing import NamedTuple

from runtime.swap.landmarks import (
    ANY,
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    WITHOUT_GRADIENTS,
    Landmark,
    Landmarks,
    Spot,
    landmarks,
    turns,
)
from tests.runtime.swap.chain import Seen

WEIGHTS = {1, 2, 3}


class Ran(NamedTuple):
    """An operator, with the storages that it takes; those that no weight is look alike."""

    phase: int
    takes: tuple[int, ...] = ()


def seen_in(ran: Sequence[Ran]) -> Landmarks:
    seen: list[Seen] = []
    ordinals: dict[int, int] = {}
    for op, one in enumerate(ran):
        for position, storage in enumerate(one.takes):
            key = storage if storage in WEIGHTS else 99
            ordinals[key] = ordinals.get(key, -1) + 1
            seen.append(Seen(op, storage, key, ordinals[key], position, False, 0))
    return landmarks([one.phase for one in ran], seen, WEIGHTS)  # type: ignore[arg-type]


LAYER = {weight: (Ran(FORWARD, (10 * weight, weight)), Ran(FORWARD, (10 * weight + 1,))) for weight in WEIGHTS}
BACK = {weight: (Ran(BACKWARD, (10 * weight + 1,)), Ran(BACKWARD, (10 * weight, weight))) for weight in WEIGHTS}
UPDATE = Ran(OPTIMIZER, (1, 2, 3))


def step(*layers: int) -> list[Ran]:
    """Forward through these layers, backward through them, and an update."""
    there = [one for layer in layers for one in LAYER[layer]]
    back = [one for layer in reversed(layers) for one in BACK[layer]]
    return [*there, *back, UPDATE]


def test_landmarks_are_first_uses_of_weights_and_first_operators_of_phases() -> None:
    found = seen_in(step(1, 2))
    assert list(zip(found.found, found.ops, strict=True)) == [
        (Landmark(ANY, FORWARD, 0), 0),
        (Landmark(1, FORWARD, 0), 0),
        (Landmark(2, FORWARD, 0), 2),
        (Landmark(ANY, BACKWARD, 0), 4),
        (Landmark(2, BACKWARD, 0), 5),
        (Landmark(1, BACKWARD, 0), 7),
        (Landmark(ANY, OPTIMIZER, 0), 8),
    ]
    assert [found.spot(op) for op in (0, 1, 3, 6, 8)] == [Spot(1, 0), Spot(1, 1), Spot(2, 1), Spot(4, 1), Spot(6, 0)]


def test_a_layer_that_is_left_out_shifts_no_other_but_what_comes_before_the_next_weight() -> None:
    def spots(*layers: int) -> dict[tuple[int, int], tuple[Landmark, int]]:
        ran = step(*layers)
        found = seen_in(ran)
        return {
            (ran[op].phase, ran[op].takes[position]): (found.found[spot.landmark], spot.since)
            for (op, position), spot in found.sighted.items()
        }

    whole, without = spots(1, 2, 3), spots(1, 3)
    differ = {place for place, spot in without.items() if spot != whole[place]}
    assert differ == {(BACKWARD, 11)}
    assert whole.keys() - without.keys() == {
        (FORWARD, 20),
        (FORWARD, 2),
        (FORWARD, 21),
        (BACKWARD, 21),
        (BACKWARD, 20),
        (BACKWARD, 2),
    }


def test_a_second_pass_has_landmarks_of_its_own() -> None:
    ran = [*step(1, 2)[:-1], *step(1, 2)]
    found = seen_in(ran)
    assert [landmark.turn for landmark in found.found].count(1) == 7
    assert turns([FORWARD, BACKWARD, OPTIMIZER, WITHOUT_GRADIENTS, FORWARD, BACKWARD]) == [0, 0, 0, 1, 1, 1]


def test_without_an_operator_or_a_landmark_the_iterations_begin_counts() -> None:
    assert landmarks([], [], WEIGHTS) == Landmarks()
    assert Landmarks().spot(7) == Spot()
