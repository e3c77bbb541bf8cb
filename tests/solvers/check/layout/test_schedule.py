"""Layout schedules: those that we lower pass, and whatever is dropped, moved or falsified is found."""

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from solvers.check import check_schedule
from solvers.check.layout.judge import judge_layout
from solvers.ir import Action, InvalidProblem, LayoutBlock, LayoutChunk, LayoutPlan, LayoutProblem, Schedule
from solvers.layout.lower import lower

Edit = Callable[[list[Action], random.Random], None]


def chunk(*, trainable: bool = True) -> LayoutChunk:
    own = 1 if trainable else 0
    return LayoutChunk(
        trainable=trainable,
        load_us=4,
        gather_us=2,
        reduce_us=3 * own,
        offload_us=2 * own,
        cpu_update_us=5 * own,
        allreduce_us=4 * own,
        device_update_us=own,
        persistent_bytes=24,
        host_bytes=24,
    )


def block(number: int, *chunks: int) -> LayoutBlock:
    return LayoutBlock(
        name=f"layer {number}",
        forward_us=6,
        backward_us=11,
        activation_bytes=9,
        input_bytes=2,
        forward_transient_bytes=3,
        backward_transient_bytes=4,
        chunks=chunks,
        swap_out_us=7,
        swap_in_us=7,
    )


TIED = LayoutProblem(
    name="six layers, a tied chunk and a frozen one",
    device_bytes=200,
    host_bytes=200,
    ranks=2,
    fixed_bytes=5,
    chunk_bytes=8,
    interval=1,
    overlap_update=False,
    chunks=(chunk(), chunk(), chunk(trainable=False), chunk(), chunk(), chunk()),
    blocks=(block(0, 0), block(1, 1), block(2, 2), block(3, 3), block(4, 4), block(5, 0, 5)),
)
PLAN = LayoutPlan(persistent=(1,), buffers=3, policies=("swap", "checkpoint", "swap", "checkpoint", "keep", "swap"))
"""Swaps with and without a later pass that releases, both kinds of eviction, and too few buffers for all chunks."""


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    assert judge_layout(TIED, PLAN).clean
    return lower(TIED, PLAN)


def drop(*dos: str) -> Edit:
    def edit(actions: list[Action], source: random.Random) -> None:
        gone = actions.pop(source.choice([n for n, action in enumerate(actions) if action.do in dos]))
        for number, action in enumerate(actions):
            if gone.id in action.after:
                after = (*(one for one in action.after if one != gone.id), *gone.after)
                actions[number] = replace(action, after=after)

    return edit


def change(change_of: Callable[[Action], Action], *dos: str, lane: str = "") -> Edit:
    def edit(actions: list[Action], source: random.Random) -> None:
        fitting = [n for n, action in enumerate(actions) if action.do in dos and action.lane.endswith(lane)]
        number = source.choice(fitting)
        assert change_of(actions[number]) != actions[number]
        actions[number] = change_of(actions[number])

    return edit


ALL = ("compute", "recompute", "load", "evict", "collective_start", "swap_out", "release", "swap_in", "update")
EDITS: dict[str, Edit] = {
    **{f"{do} dropped": drop(do) for do in ALL},
    "other bytes": change(lambda one: replace(one, bytes=one.bytes + 1), *ALL),
    "another lane": change(lambda one: replace(one, lane="0.host"), *(do for do in ALL if do != "update")),
    "no pass": change(lambda one: replace(one, op=None), *(do for do in ALL if do != "load")),
    "a pass that is none": change(lambda one: replace(one, op=99), *ALL),
    "the pass before": change(
        lambda one: replace(one, op=(one.op or 1) - 1), "compute", "recompute", "evict", "update"
    ),
    "another block": change(
        lambda one: replace(one, data=("block 1",) if one.data != ("block 1",) else ("block 4",)),
        *("compute", "recompute", "swap_out", "swap_in", "release"),
    ),
    "a chunk that is none": change(
        lambda one: replace(one, data=("chunk 6", *one.data[1:])), "load", "evict", "update"
    ),
    "a buffer that is none": change(lambda one: replace(one, data=(one.data[0], "buffer 7")), "load", lane="in"),
    "another buffer": change(
        lambda one: replace(one, data=(one.data[0], "buffer 0" if one.data[1] != "buffer 0" else "buffer 1")),
        *("load", "evict"),
        lane="in",
    ),
    "a word for a name": change(lambda one: replace(one, data=("layer 1",)), *ALL),
    "a number with zeros": change(lambda one: replace(one, data=("block 01",)), "swap_out"),
    "what is persistent is loaded": change(lambda one: replace(one, data=("chunk 1", one.data[1])), "load", lane="in"),
    "gradients for parameters": change(
        lambda one: replace(one, data=("chunk 3",) if one.data == ("gradients 3",) else ("gradients 3",)),
        "collective_start",
    ),
    "updated elsewhere": change(
        lambda one: replace(one, lane="0.host" if one.lane == "0.compute" else "0.compute"), "update"
    ),
    "evicted on the other lane": change(
        lambda one: replace(one, lane="0.out" if one.lane == "0.compute" else "0.compute"), "evict"
    ),
    "an action of other kinds": change(lambda one: replace(one, do="send"), *ALL),
}


def test_a_lowered_schedule_passes(schedule: Schedule) -> None:
    assert check_schedule(TIED, schedule).violations == ()
    assert {action.do for action in schedule.actions} == set(ALL)
    assert {action.lane for action in schedule.actions if action.do == "release"} == {"0.compute", "0.in"}
    assert {action.lane for action in schedule.actions if action.do == "evict"} == {"0.compute", "0.out"}


@pytest.mark.parametrize("name", EDITS)
def test_whatever_is_changed_is_found(schedule: Schedule, name: str) -> None:
    for seed in range(25):
        actions = list(schedule.actions)
        EDITS[name](actions, random.Random(seed))
        try:
            changed = Schedule(lanes=schedule.lanes, actions=tuple(actions))
        except InvalidProblem:  # actions that wait in a circle are no schedule at all
            continue
        assert check_schedule(TIED, changed).violations, (name, seed)


def test_each_fault_is_one_sentence_that_names_it(schedule: Schedule) -> None:
    swap_in = next(action for action in schedule.actions if action.do == "swap_in" and action.after)
    actions = tuple(replace(one, after=()) if one.id == swap_in.id else one for one in schedule.actions)
    (fault,) = check_schedule(TIED, replace(schedule, actions=actions)).violations
    assert fault.startswith(f"action {swap_in.id} does not wait for pass")
    tight = check_schedule(replace(TIED, device_bytes=60, host_bytes=100), schedule).violations
    assert any("bytes on the device, which has 60" in fault for fault in tight)
    assert "the schedule needs 147 bytes of host memory, but there are 100" in tight


def test_two_actions_that_lie_there_and_none_are_refused(schedule: Schedule) -> None:
    first, *others = schedule.actions
    assert (first.do, first.op) == ("load", None)
    fault = "the compute lane does not begin with the one load of what lies on the device throughout"
    assert check_schedule(TIED, replace(schedule, actions=tuple(others))).violations == (fault,)
    twice = (first, replace(first, id=999), *others)
    assert check_schedule(TIED, replace(schedule, actions=twice)).violations == (fault,)
    doubled = (replace(first, data=(*first.data, first.data[0])), *others)
    assert "names data twice" in check_schedule(TIED, replace(schedule, actions=doubled)).violations[0]
    less = (replace(first, bytes=first.bytes - 1), *others)
    assert check_schedule(TIED, replace(schedule, actions=less)).violations


def test_what_is_persistent_is_not_gathered(schedule: Schedule) -> None:
    gather = next(one for one in schedule.actions if one.do == "collective_start")
    more = replace(gather, id=999, data=("chunk 1",), after=())
    added = replace(schedule, actions=(*schedule.actions, more))
    assert "chunk 1 is gathered, but persistent" in check_schedule(TIED, added).violations
