"""What each part of a backward pass takes, from a log as the device tells it."""

from runtime.recompute.course import LAST, Event, Happened
from runtime.recompute.footprint import mark_of
from runtime.recompute.parts import parts_us, ran_in_parts


def event(tape: int, what: Happened, index: int) -> Event:
    return tape, what, index, 0, 0


LOG = [
    event(-1, Happened.MARK, mark_of(0, backward=False)),
    event(-1, Happened.WAIT, 0),  # of a forward pass
    event(-1, Happened.MARK, mark_of(1, backward=True)),
    event(1, Happened.RAN, 4),
    event(0, Happened.RAN, 9),  # ahead, of another block
    event(-1, Happened.WAIT, 1),
    event(-1, Happened.MARK, mark_of(0, backward=True)),
    event(-1, Happened.WAIT, 2),
    event(0, Happened.RAN, 0),
    event(0, Happened.RAN, 1),
    event(-1, Happened.MARK, LAST),
    event(0, Happened.RAN, 2),  # behind the pass
]


def test_a_backward_pass_is_cut_at_its_waits() -> None:
    assert ran_in_parts(LOG) == {1: [[4], []], 0: [[], [0, 1]]}


def test_parts_are_without_waits_and_without_what_ran_again() -> None:
    at_us = [0.0, 30.0, 37.0, 60.0].__getitem__
    assert parts_us((0, 3), [(1, 2)], [[], [0, 1]], [(0, 5.0), (1, 10.0)], at_us) == (30.0, 8.0)
    assert parts_us((0, 3), [], [[0]], [(0, 5.0)], at_us) == (55.0,)
    assert parts_us((0, 3), [(1, 2)], [[0]], [(0, 5.0)], at_us) == ()  # other waits than the log's
    assert parts_us((0, 3), [], [[1]], [(0, 5.0)], at_us) == ()  # something else ran again
