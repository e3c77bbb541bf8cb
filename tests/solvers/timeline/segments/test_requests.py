"""A step's requests: the same step again, and under a schedule in the order in which the executor asks."""

from solvers.ir.requests import HeldRun, StepRequests
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.segments import Event, Requests, recorded, repeated, under_schedule
from tests.solvers.timeline.segments.levels import MIB, levels

LANES = ("0.compute", "0.out", "0.in")


def away(tensor: int, released: int, returns: int) -> Schedule:
    """What matters of a schedule here: when a tensor's block goes, and when another is taken for it."""
    actions = (
        Action(id=0, lane="0.compute", do="release", op=released, data=(tensor,)),
        Action(id=1, lane="0.in", do="swap_in", op=returns, data=(tensor,)),
    )
    return Schedule(lanes=LANES, actions=actions)


def test_a_repeated_step_frees_what_the_round_before_left() -> None:
    """The step finds a gradient (block 1), frees it and leaves a new one of the same size."""
    held = (Event(0, 10 * MIB), Event(1, 4 * MIB))
    step = (Event(1, 0), Event(2, 6 * MIB), Event(3, 4 * MIB), Event(2, 0))
    events = repeated(Requests(held, step, (0, 0, 0, 0), {}), 3)
    assert levels(events) == [10, 14, *[10, 16, 20, 14] * 3]
    assert len({event.block for event in events}) == 2 + 3 * 2


def test_a_step_that_leaves_more_each_time_is_replayed_so() -> None:
    assert levels(repeated(Requests((Event(0, MIB),), (Event(5, 3 * MIB),), (0,), {}), 3)) == [1, 4, 7, 10]


def test_what_takes_a_found_block_s_place_may_be_told() -> None:
    """Two blocks of one size are left; the step says which of them it finds next time."""
    held = (Event(-1, 4 * MIB),)
    step = (Event(0, 4 * MIB), Event(1, 4 * MIB), Event(-1, 0), Event(0, 0))
    events = repeated(Requests(held, step, (0, 0, 0, 1), {}, carried={-1: 1}), 2)
    assert [event.block for event in events] == [-1, 2, 3, -1, 2, 4, 5, 3, 4]


def test_releases_come_before_what_lies_between_operators_and_swap_ins_after_it() -> None:
    """Block 0 leaves before op 2 and returns at op 4; block 9 is freed before op 2 begins, block 8 before op 4 does."""
    step = Requests(
        held=(Event(9, MIB), Event(8, MIB)),
        events=(Event(0, 8 * MIB), Event(9, 0), Event(1, MIB), Event(8, 0), Event(0, 0)),
        ops=(0, None, 2, None, 5),
        block_of={7: 0},
        begun=(1, 2, 3, 4, 6),
    )
    planned = under_schedule(step, away(7, 2, 4))
    assert planned.events == (
        Event(0, 8 * MIB),
        Event(0, 0),
        Event(9, 0),
        Event(1, MIB),
        Event(8, 0),
        Event(10, 8 * MIB),
        Event(10, 0),
    )
    assert planned.ops == (0, 2, None, 2, None, 4, 5)


def test_a_tensor_that_dies_while_it_is_away_is_not_asked_for() -> None:
    step = Requests((), (Event(0, 8 * MIB), Event(0, 0), Event(1, MIB)), (0, 3, 5), {7: 0})
    assert under_schedule(step, away(7, 2, 4)).events == (Event(0, 8 * MIB), Event(0, 0), Event(1, MIB))
    assert under_schedule(step, away(7, 4, 5)).events == step.events, "freed before its release"


def test_a_recorded_step_finds_its_blocks_elsewhere() -> None:
    """After other steps the gradient lies at 6 MiB in place of 4; one that has no like is left out."""
    blocks = ((4 * MIB, True), (2 * MIB, True), (2 * MIB, False))
    run = HeldRun(address=0, stream=0, small=False, expandable=False, blocks=blocks)
    told = StepRequests(
        runs=(run,),
        events=((-1 - 4 * MIB, 0, 0, -1), (0, 2 * MIB, 0, 3)),
        block_of=((7, 0),),
        carried=((-1 - 4 * MIB, 0),),
    )
    now = HeldRun(
        address=0,
        stream=0,
        small=False,
        expandable=False,
        blocks=((4 * MIB, True), (2 * MIB, False), (2 * MIB, True)),
    )
    assert recorded(told).events[0] == Event(-1 - 4 * MIB, 0)
    moved = recorded(told, (now,))
    assert moved.events == (Event(-1 - 6 * MIB, 0), Event(0, 2 * MIB))
    assert moved.carried == {-1 - 6 * MIB: 0} and moved.begun == (0, 4) and moved.ops == (None, 3)
    gone = HeldRun(address=0, stream=0, small=False, expandable=False, blocks=((4 * MIB, True), (4 * MIB, False)))
    assert recorded(told, (gone,)).events == (Event(0, 2 * MIB),)
