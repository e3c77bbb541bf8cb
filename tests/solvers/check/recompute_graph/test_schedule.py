"""The judge of recompute-graph schedules: clean as lowered; each fault is named."""

import re
from itertools import pairwise

import pytest
from msgspec.structs import replace

from solvers.check import check_schedule
from solvers.ir.schedule import Schedule, parse_action
from solvers.recompute.graph.lower import lower
from solvers.recompute.graph.replay import replay
from tests.solvers.check.recompute_graph.test_judge import COMM
from tests.solvers.recompute.graph.test_lower import HIDDEN, solved
from tests.solvers.recompute.graph.test_replay import both


def test_missing_waits_and_readers_too_early_are_found() -> None:
    """Run a reader before what it reads, or drop a wait: nine in ten are found, the next wait implies the others."""
    dropped = found = exchanged = 0
    for problem, decision in solved(range(0, 40)):
        schedule = lower(problem, decision)
        peak = replay(problem, *both(problem, decision)).peak_bytes
        tight = replace(problem, budget_bytes=peak)
        for action in schedule.actions:
            if action.after:
                changed = [replace(a, after=()) if a is action else a for a in schedule.actions]
                found += not check_schedule(tight, Schedule(lanes=schedule.lanes, actions=tuple(changed))).clean
                dropped += 1
        lane = [a for a in schedule.actions if a.lane == "0.compute"]
        for first, second in pairwise(lane):
            reads = second.op is not None and first.op in problem.ops[second.op].inputs and first.do != "release"
            if reads and second.do in ("compute", "recompute") and first.do in ("compute", "recompute"):
                order = list(schedule.actions)
                a, b = order.index(first), order.index(second)
                order[a], order[b] = order[b], order[a]
                assert not check_schedule(tight, Schedule(lanes=schedule.lanes, actions=tuple(order))).clean
                exchanged += 1
    assert dropped > 150 and found > 0.85 * dropped and exchanged > 50


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 0.compute swap_out op=0 data=0 bytes=4", "action 0 does swap_out, but this schedule has only compute"),
        ("0 0.comm compute op=0 data=0 bytes=4", "on lane 0.comm, but it belongs on 0.compute"),
        ("0 0.compute compute op=0 data=0 bytes=3", r"has data \[0\] of 3 bytes"),
        ("0 0.compute compute op=9 data=0 bytes=4", "belongs to op 9, but ops are 0…3"),
        ("0 0.compute recompute op=0 data=0 bytes=4", r"the first runs are of ops \[1, 2, 3\]…"),
        ("0 0.comm collective_start op=0 data=0 bytes=4", "does collective_start, but op 0 is not a communication"),
    ],
)
def test_a_foreign_action_is_named(line: str, words: str) -> None:
    first, *others = lower(COMM, HIDDEN).actions
    faulty = Schedule(lanes=("0.compute", "0.comm"), actions=(parse_action(line), *others))
    found = check_schedule(COMM, faulty).violations
    assert any(re.search(words, violation) for violation in found), found
    assert first.id == 0


def test_leaks_and_double_frees_are_found() -> None:
    schedule = lower(COMM, HIDDEN)
    leaking = Schedule(lanes=schedule.lanes, actions=schedule.actions[:-1])
    assert check_schedule(COMM, leaking).violations == ("op 3's output is never released after action 7",)
    twice = Schedule(lanes=schedule.lanes, actions=(*schedule.actions, replace(schedule.actions[-1], id=99)))
    assert check_schedule(COMM, twice).violations == ("op 3 has release (action 99) after release (action 10)",)


def test_the_buffer_of_a_communication_counts_while_it_may_run() -> None:
    """As lowered, op 2's byte stands beside op 1 and the recomputed op 0: 5 + 1 + 3 + 4 = 13; at 12 it is in the way.

    And were the communication not to wait for op 1, its buffer might stand beside op 1's run as well: 5 + 4 + 3 + 1.
    """
    schedule = lower(COMM, HIDDEN)
    assert check_schedule(COMM, schedule).violations == ()
    found = check_schedule(replace(COMM, budget_bytes=12), schedule).violations
    assert found == (
        "action 4 finds 13 bytes in use, budget 12",
        "action 5 finds 13 bytes in use, budget 12",
        "action 6 finds 13 bytes in use, budget 12",
    )
