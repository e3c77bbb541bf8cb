"""The judge of swap schedules: a story by hand, each order and sum broken once, every wait of real ones dropped."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check import check_plan, check_schedule
from solvers.ir import InvalidInput, Schedule, Solution, Status, parse_schedule
from solvers.ir.codec import plan_file
from solvers.swap.lower import lower
from tests.solvers.check.partition.test_judge import STORY as PARTITION
from tests.solvers.check.swap.test_judge import STORY
from tests.strategies import swap_plans, swap_problems

GOOD = """\
lanes 0.compute 0.out 0.in
0 0.compute compute op=0
1 0.out swap_out op=0 data="x" bytes=4 after=0
2 0.compute compute op=1
3 0.compute release op=2 data="x" bytes=4 after=1
4 0.compute compute op=2
5 0.compute compute op=3
6 0.in swap_in op=4 data="x" bytes=4 after=5
7 0.compute compute op=4 after=6"""
"""Tensor x of the swap story (4 bytes, uses 0 and 4) leaves after op 0, makes room for op 2, returns before op 4."""


def test_a_good_schedule_is_clean() -> None:
    assert check_schedule(STORY, parse_schedule(GOOD)).violations == ()


def test_a_schedule_that_swaps_nothing_is_clean_where_memory_suffices() -> None:
    plain = parse_schedule("lanes 0.compute\n" + "\n".join(f"{j} 0.compute compute op={j}" for j in range(5)))
    assert check_schedule(replace(STORY, budget_bytes=14), plain).clean
    assert check_schedule(STORY, plain).violations == (
        "op 2 finds 14 bytes in use, budget 10",
        "op 3 finds 12 bytes in use, budget 10",
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bytes=4 after=0", "bytes=4", "tensor 'x': its swap-out does not wait for op 0, its last forward use"),
        ("bytes=4 after=1", "bytes=4", "tensor 'x': its memory is released before its swap-out has ended"),
        ("bytes=4 after=5", "bytes=4", "tensor 'x': its swap-in does not wait for its release"),
        ("bytes=4 after=5", "bytes=4 after=3", "swap-in does not wait for action 5, so that op 4's memory may lack"),
        ("op=4 after=6", "op=4", "tensor 'x': op 4, its first backward use, does not wait for its swap-in"),
        ("swap_out op=0", "swap_out op=1", "tensor 'x' leaves after op 1 and returns before op 4, but may only leave"),
        (
            "swap_in op=4",
            "swap_in op=0",
            "returns before op 0, but may only leave after op 0 and return before ops 1…4",
        ),
        ("swap_in op=4", "swap_in op=3", "op 3 finds 12 bytes in use, budget 10"),
        ("release op=2", "release op=1", "action 3 releases before op 2, but says before op 1"),
        ("4 0.compute compute op=2\n", "", "the compute lane computes op 3 where op 2 is due"),
        ("7 0.compute compute op=4 after=6", "", "the compute lane computes 4 ops, but the problem has 5"),
        ("compute op=4", "compute op=5", "action 7 belongs to op 5, but ops are 0…4"),
        ("compute op=4", "recompute op=4", "action 7 does recompute, but a swap schedule has only compute, release"),
        ("0.in swap_in", "0.out swap_in", "action 6 does swap_in on lane 0.out, but it belongs on 0.in"),
        ("swap_in op=4", "swap_in", "action 6 belongs to op None, but ops are 0…4"),
        ('release op=2 data="x"', 'release op=2 data="z"', "action 3 does release with data ['z'], but a swap names"),
        ('release op=2 data="x"', "release op=2", "action 3 does release with data [], but a swap names"),
        ("compute op=2", 'compute op=2 data="x"', "action 4 does compute with data ['x']"),
        ("bytes=4 after=5", "bytes=3 after=5", "action 6 does swap_in of 3 bytes, but its tensors have 4"),
        (
            '3 0.compute release op=2 data="x" bytes=4 after=1\n',
            "",
            "tensor 'x' has swap_out 1 times, release 0 times, swap_in 1 times, but a swapped tensor has each once",
        ),
        (
            '\n3 0.compute release op=2 data="x" bytes=4 after=1',
            '\n3 0.compute release op=2 data="x" bytes=4 after=1\n8 0.compute release op=2 data="x" bytes=4',
            "tensor 'x' has swap_out 1 times, release 2 times, swap_in 1 times",
        ),
    ],
)
def test_each_fault_is_named(old: str, new: str, words: str) -> None:
    assert GOOD.count(old) == 1
    violations = check_schedule(STORY, parse_schedule(GOOD.replace(old, new))).violations
    assert any(words in violation for violation in violations), violations


def test_a_late_release_leaves_too_little_memory() -> None:
    lines = GOOD.split("\n")
    late = "\n".join([*lines[:4], lines[5], lines[4].replace("op=2", "op=3"), *lines[6:]])
    assert check_schedule(STORY, parse_schedule(late)).violations == ("op 2 finds 14 bytes in use, budget 10",)


def test_only_swap_schedules_can_be_judged() -> None:
    with pytest.raises(InvalidInput, match="schedules of kind partition have no check"):
        check_schedule(PARTITION, parse_schedule(GOOD))


@settings(max_examples=120)
@given(st.data())
def test_lowered_plans_are_clean_and_need_every_single_wait(data: st.DataObject) -> None:
    """The static counterpart of the race check: drop any one `after` edge, and the judge says what may go wrong."""
    problem = data.draw(swap_problems())
    if data.draw(st.booleans()):
        problem = replace(problem, budget_bytes=max(problem.memory_bytes))
    plan = data.draw(swap_plans(problem))
    solution = Solution(status=Status.FEASIBLE, plan=plan, solver="test", objective=0)
    file = replace(plan_file(solution, "swap", None), objective_us=None)
    assume(check_plan(problem, file).clean)
    schedule = lower(problem, plan)
    assert check_schedule(problem, schedule).violations == ()
    for number, action in enumerate(schedule.actions):
        for dropped in action.after:
            after = tuple(before for before in action.after if before != dropped)
            broken = (*schedule.actions[:number], replace(action, after=after), *schedule.actions[number + 1 :])
            assert not check_schedule(problem, Schedule(lanes=schedule.lanes, actions=broken)).clean
