"""A schedule is written as text and read again, and runs in an order that respects its waits, never in a circle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.ir import Action, InvalidInput, InvalidProblem, Schedule, parse_action, parse_schedule
from solvers.ir.schedule import lane_actions
from tests.documents import schedules

STORY = """\
lanes 0.compute 0.out
0 0.compute compute op=0
1 0.out swap_out op=0 data=7,"a\\u0020b\\u002cc" bytes=4096 after=0
2 0.compute compute op=1 mb=3
3 0.compute release op=2 data=7 bytes=4096 after=1"""


@given(schedules())
def test_the_text_form_reads_back_whatever_the_ids(schedule: Schedule) -> None:
    assert parse_schedule(schedule.text()) == schedule
    for action in schedule.actions:
        assert parse_action(action.text()) == action


def test_the_text_form_is_one_action_a_line() -> None:
    schedule = parse_schedule(STORY)
    assert schedule.text() == STORY
    assert schedule.actions[1].data == (7, "a b,c")
    assert schedule.actions[2].microbatch == 3
    assert [action.id for action in lane_actions(schedule.actions, "0.compute")] == [0, 2, 3]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "0",
        "x 0.compute compute",
        "0 0.attic compute",
        "0 1.out\\n swap_out",
        "0 0.compute stow",
        "0 0.compute compute op",
        "0 0.compute compute op=-1",
        "0 0.compute compute op=x",
        "0 0.compute compute op=1 op=2",
        "0 0.compute compute when=now",
        "0 0.compute compute data=1.5",
        "0 0.compute compute data=tensor",
        "0 0.compute compute after=",
        "0 0.compute compute bytes=1e3",
    ],
)
def test_a_line_that_is_no_action_is_refused_with_the_line(line: str) -> None:
    with pytest.raises(InvalidInput, match="cannot read the action") as caught:
        parse_action(line)
    assert repr(line) in str(caught.value)


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_a_refusal(text: str) -> None:
    for whole in (text, f"lanes 0.out\n{text}"):
        try:
            parse_schedule(whole)
        except InvalidInput as error:
            assert "\n" not in str(error)


@given(schedules())
def test_the_order_respects_lanes_and_waits(schedule: Schedule) -> None:
    order = schedule.order()
    place = {action.id: number for number, action in enumerate(order)}
    assert sorted(place) == sorted(action.id for action in schedule.actions)
    assert all(place[before] < place[action.id] for action in schedule.actions for before in action.after)
    for lane in schedule.lanes:
        assert lane_actions(order, lane) == lane_actions(schedule.actions, lane)


def action(name: int, lane: str, *after: int) -> Action:
    return Action(id=name, lane=lane, do="compute", after=after)


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ((action(0, "0.out"),), r"actions\[0\] runs on '0.out', which is not listed"),
        ((action(0, "0.in"), action(0, "0.in")), "action 0 appears twice"),
        ((action(0, "0.in", 5),), r"actions\[0\] waits for action 5, which does not exist"),
        ((action(0, "0.in", 0),), r"actions \[0\] wait for each other"),
        ((action(4, "0.in", 9), action(9, "0.compute", 4)), "wait for each other"),
        ((action(0, "0.in", 1), action(1, "0.in")), "wait for each other"),
    ],
)
def test_schedules_that_cannot_run_are_refused(actions: tuple[Action, ...], words: str) -> None:
    with pytest.raises(InvalidProblem, match=words):
        Schedule(lanes=("0.compute", "0.in"), actions=actions)


def test_a_lane_is_listed_once() -> None:
    with pytest.raises(InvalidProblem, match=r"lane '0\.in' appears twice"):
        Schedule(lanes=("0.in", "0.in"), actions=())
