"""The swap judge: a story by hand, a second reading of formats.md 3, broken plans, and its proven consequences."""

from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.swap.judge import base_us, judge_swap, least_budget_bytes
from solvers.ir import Swap, SwapLink, SwapOp, SwapPlan, SwapProblem, SwapTensor
from tests.solvers.check.swap.naive_swap import naive_objective_us
from tests.solvers.swap.brute_force import meaning
from tests.strategies import swap_plans, swap_problems

STORY = SwapProblem(
    name="two tensors, five ops",
    budget_bytes=10,
    ops=tuple(SwapOp(name=f"op{j}", time_us=10, phase="forward" if j < 3 else "backward") for j in range(5)),
    memory_bytes=(6, 10, 14, 12, 8),
    tensors=(
        SwapTensor(id="x", bytes=4, last_forward_use=0, first_backward_use=4),
        SwapTensor(id="y", bytes=3, last_forward_use=1, first_backward_use=3),
    ),
    link=SwapLink(out_bytes_per_s=500_000, in_bytes_per_s=250_000, latency_us=1),
)
"""Out takes 1 + 2·bytes us (x 9, y 7), in takes 1 + 4·bytes us (x 17, y 13)."""


def plan(*swaps: tuple[str | int, int]) -> SwapPlan:
    return SwapPlan(swaps=tuple(Swap(tensor=name, swap_in_at=k) for name, k in swaps))


def test_one_tensor_leaves_and_returns() -> None:
    """x leaves at 10, is out at 19. Op 1 runs 10-20, op 2 needs 14 − 4 = 10 bytes: 20-30.

    Op 3 needs 12 − 4 = 8: 30-40. Op 4 (8 bytes, x back in them) lets x return at 40, arrived at 57: 57-67.
    """
    assert judge_swap(STORY, plan(("x", 4))).objective_us == 67


def test_an_earlier_return_hides_the_transfer() -> None:
    """With k = 3 x returns from 30 on, but then op 3 finds 12 bytes, over 10, as y is needed there."""
    assert judge_swap(STORY, plan(("x", 3))).violations == (
        "op 3 ('op3') needs 12 bytes when all is swapped out, budget 10",
    )
    ample = replace(STORY, budget_bytes=12)  # x is out at 19, op 3 runs 30-40, x arrives at 30 + 17 = 47, op 4: 47-57
    assert judge_swap(ample, plan(("x", 3))).objective_us == 57


def test_an_op_waits_until_enough_has_left() -> None:
    """Budget 9: op 1 needs 10 − 4, so it waits for x: out at 19, op 1 runs 19-29. y leaves 29-36.

    Op 2 needs 14 − 4 − 3 = 7 ≤ 9, but 14 − 4 = 10 is too much, so it waits until 36: 36-46. y returns at k = 3:
    op 3 finds 12 − 4 = 8 with y back: granted at 46, y arrives at 59, op 3 59-69. x at 69 + 17 = 86, op 4 86-96.
    """
    assert judge_swap(replace(STORY, budget_bytes=9), plan(("x", 4), ("y", 3))).objective_us == 96


def test_lanes_are_fifo_by_op_then_by_list_order() -> None:
    """Both leave after op 0 and return before op 1. Out: x first 10-19, y 19-26, both back issued at 26.

    In, x first: 26-43, y 43-56. With y listed first: y out 10-17, x 17-26, in y 26-39, x 39-56. Op 1 needs x only and
    op 2 needs y: x first lets op 1 run 43-53 and op 2 56-66; y first lets op 1 run 56-66 and op 2 66-76.
    """
    both = replace(
        STORY,
        ops=STORY.ops[:3],
        memory_bytes=(7, 7, 7),
        tensors=(
            SwapTensor(id="x", bytes=4, last_forward_use=0, first_backward_use=1),
            SwapTensor(id="y", bytes=3, last_forward_use=0, first_backward_use=2),
        ),
    )
    assert judge_swap(both, plan(("x", 1), ("y", 1))).objective_us == 66
    assert judge_swap(both, plan(("y", 1), ("x", 1))).objective_us == 76


def test_a_tensor_cannot_return_before_it_has_left() -> None:
    """x leaves 10-19 and returns before op 1, which is granted at 19 (by memory it could at 10) and runs 19-29."""
    assert judge_swap(replace(STORY, budget_bytes=14), plan(("x", 1))).objective_us == 59


def test_what_returns_before_an_op_is_not_absent_during_it() -> None:
    """x out 10-19, y 19-26. Op 1 needs 12 − 3 (y) ≤ 10: x, which returns before it, is no help, so it waits until 26.

    x is back 26-43, op 1 runs 26-36, y is issued at 36 and back 43-56, op 2 runs 56-66.
    """
    both = replace(
        STORY,
        ops=STORY.ops[:3],
        memory_bytes=(7, 12, 8),
        tensors=tuple(replace(tensor, last_forward_use=0, first_backward_use=2) for tensor in STORY.tensors),
    )
    assert judge_swap(both, plan(("x", 1), ("y", 2))).objective_us == 66


def test_no_swaps_take_the_base() -> None:
    assert judge_swap(replace(STORY, budget_bytes=14), plan()).objective_us == base_us(STORY) == 50


@pytest.mark.parametrize(
    ("swaps", "words"),
    [
        ([("z", 2)], "swaps[0]: tensor 'z' is not one of the problem's 2 tensors"),
        ([(0, 2)], "swaps[0]: tensor 0 is not one of the problem's 2 tensors"),
        ([("x", 4), ("x", 4)], "swaps[1]: tensor 'x' is swapped a second time, but a step swaps a tensor at most once"),
        ([("x", 0)], "swaps[0]: tensor 'x' has swap_in_at 0, outside 1…4"),
        ([("y", 4)], "swaps[0]: tensor 'y' has swap_in_at 4, outside 2…3"),
        ([("y", 3)], "op 2 ('op2') needs 11 bytes when all is swapped out, budget 10"),
    ],
)
def test_broken_plans_are_refused_with_place_value_and_limit(swaps: list[tuple[str, int]], words: str) -> None:
    verdict = judge_swap(STORY, plan(*swaps))
    assert words in verdict.violations
    assert verdict.objective_us is None


@settings(max_examples=250)
@given(st.data())
def test_the_judge_agrees_with_a_ticking_clock(data: st.DataObject) -> None:
    problem = data.draw(swap_problems(max_ops=7, max_tensors=5, plain=True))
    decision = data.draw(swap_plans(problem))
    if data.draw(st.booleans()):  # a budget that this plan just meets, or just not
        bytes_of = {tensor.id: (tensor.last_forward_use, tensor.bytes) for tensor in problem.tensors}
        needed = (
            memory - sum(bytes_of[s.tensor][1] for s in decision.swaps if bytes_of[s.tensor][0] < j < s.swap_in_at)
            for j, memory in enumerate(problem.memory_bytes)
        )
        problem = replace(problem, budget_bytes=max(0, max(needed) + data.draw(st.integers(-1, 2))))
    assert judge_swap(problem, decision).objective_us == naive_objective_us(problem, decision)


@settings(max_examples=200)
@given(st.data())
def test_with_launches_and_nanoseconds_the_judge_agrees_with_the_plain_meaning(data: st.DataObject) -> None:
    problem = data.draw(swap_problems(max_ops=7, max_tensors=5))
    decision = data.draw(swap_plans(problem))
    numbers = {tensor.id: number for number, tensor in enumerate(problem.tensors)}
    listed = tuple((numbers[swap.tensor], swap.swap_in_at) for swap in decision.swaps)
    assert judge_swap(problem, decision).objective_us == meaning(problem, listed)
    assert base_us(problem) == meaning(replace(problem, budget_bytes=max(problem.memory_bytes)), ())


@settings(max_examples=80)
@given(st.data())
def test_any_single_fault_in_a_valid_plan_is_found(data: st.DataObject) -> None:
    problem = data.draw(swap_problems())
    problem = replace(problem, budget_bytes=max(problem.memory_bytes))
    decision = data.draw(swap_plans(problem))
    assert judge_swap(problem, decision).clean
    assume(decision.swaps)
    number = data.draw(st.integers(0, len(decision.swaps) - 1))
    swap = decision.swaps[number]
    tensor = next(t for t in problem.tensors if t.id == swap.tensor)
    outside = st.integers(0, 9).filter(lambda k: not tensor.last_forward_use < k <= tensor.first_backward_use)
    faults = [replace(swap, tensor="nobody's name"), replace(swap, swap_in_at=data.draw(outside))]
    for fault in faults:
        swaps = (*decision.swaps[:number], fault, *decision.swaps[number + 1 :])
        assert not judge_swap(problem, SwapPlan(swaps=swaps)).clean
    assert not judge_swap(problem, SwapPlan(swaps=(*decision.swaps, swap))).clean


def every_plan(problem: SwapProblem) -> list[SwapPlan]:
    """Each tensor stays or returns before some op (in the problem's list order)."""
    options = [
        [None, *(Swap(tensor=t.id, swap_in_at=k) for k in range(t.last_forward_use + 1, t.first_backward_use + 1))]
        for t in problem.tensors
    ]
    return [SwapPlan(swaps=tuple(swap for swap in chosen if swap)) for chosen in product(*options)]


def optimum_us(problem: SwapProblem) -> float:
    found = [verdict.objective_us for p in every_plan(problem) if (verdict := judge_swap(problem, p)).clean]
    return min((value for value in found if value is not None), default=float("inf"))


@settings(max_examples=60)
@given(swap_problems(max_ops=5, max_tensors=3))
def test_the_least_feasible_budget_is_the_closed_form(problem: SwapProblem) -> None:
    least = max(0, least_budget_bytes(problem))
    assert optimum_us(replace(problem, budget_bytes=least)) < float("inf")
    if least > 0:
        assert optimum_us(replace(problem, budget_bytes=least - 1)) == float("inf")


@settings(max_examples=60)
@given(swap_problems(max_ops=5, max_tensors=3), st.integers(0, 5), st.integers(0, 3_000_000), st.integers(0, 3_000_000))
def test_more_budget_or_bandwidth_never_hurts_the_optimum(
    problem: SwapProblem, more: int, faster_out: int, faster_in: int
) -> None:
    link = problem.link
    faster = replace(
        link,
        out_bytes_per_s=link.out_bytes_per_s + faster_out,
        in_bytes_per_s=link.in_bytes_per_s + faster_in,
    )
    better = replace(problem, budget_bytes=problem.budget_bytes + more, link=faster)
    assert base_us(problem) <= optimum_us(better) <= optimum_us(problem)


def test_two_thousand_ops_and_640_tensors_are_judged_in_seconds() -> None:
    count = 2000
    tensors = tuple(
        SwapTensor(id=n, bytes=1_000_000 + n, last_forward_use=n, first_backward_use=count - 1 - n) for n in range(640)
    )
    memory = tuple(
        10_000_000 + sum(t.bytes for t in tensors if t.last_forward_use <= j <= t.first_backward_use)
        for j in range(count)
    )
    large = SwapProblem(
        name="large",
        budget_bytes=max(memory) // 2,
        ops=tuple(SwapOp(name=str(j), time_us=100, phase="forward") for j in range(count)),
        memory_bytes=memory,
        tensors=tensors,
        link=SwapLink(out_bytes_per_s=10**10, in_bytes_per_s=10**10, latency_us=5),
    )
    decision = SwapPlan(swaps=tuple(Swap(tensor=t.id, swap_in_at=t.first_backward_use) for t in tensors))
    assert judge_swap(large, decision).clean
