"""The fast recursion is the meaning in formats.md 3, and its proven consequences hold."""

from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.swap.evaluate import choices_of, evaluate, instance, least_budget
from tests.solvers.swap.brute_force import meaning, optimum, random_problem
from tests.strategies import swap_plans, swap_problems


def story(budget: int) -> SwapProblem:
    """Four ops of 10 us; an 8-byte tensor waits from op 0 to op 3; the link moves 1 byte per us and has no latency."""
    return SwapProblem(
        name="story",
        budget_bytes=budget,
        ops=tuple(SwapOp(name=f"op{j}", time_us=10, phase="forward" if j < 2 else "backward") for j in range(4)),
        memory_bytes=(10, 12, 12, 10),
        tensors=(SwapTensor(id="t", bytes=8, last_forward_use=0, first_backward_use=3),),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
    )


def test_a_swap_that_hides_behind_nothing_delays_the_step() -> None:
    # The swap-out runs 10…18. Op 1 needs 12 − 8 ≤ 10, so it is ready at 18 and ends at 28; op 2 ends at 38.
    # Issued before op 3, the swap-in runs 38…46, op 3 runs 46…56.
    timeline = evaluate(instance(story(10)), [(0, 3)])
    assert timeline is not None
    assert timeline.makespan == 56
    assert (timeline.out_end, timeline.in_end, timeline.released) == ([18], [46], [1])


def test_memory_that_never_comes_free_makes_a_plan_invalid() -> None:
    # Issued before op 2, the tensor is back for op 2, which needs 12 bytes of 10.
    assert evaluate(instance(story(10)), [(0, 2)]) is None
    assert evaluate(instance(story(10)), []) is None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_recursion_agrees_with_the_plain_meaning(data: st.DataObject) -> None:
    problem = data.draw(swap_problems(max_ops=7, max_tensors=5))
    choices = choices_of(problem, data.draw(swap_plans(problem)))
    facts = instance(problem)
    timeline = evaluate(facts, choices)
    assert (timeline and facts.whole_us(timeline.makespan)) == meaning(problem, tuple(choices))


@settings(max_examples=100, deadline=None)
@given(swap_problems(max_ops=6, max_tensors=3))
def test_the_least_budget_is_the_least_with_a_plan(problem: SwapProblem) -> None:
    least = max(0, least_budget(problem))
    assert optimum(msgspec.structs.replace(problem, budget_bytes=least)) is not None
    if least:
        assert optimum(msgspec.structs.replace(problem, budget_bytes=least - 1)) is None


def test_the_optimum_never_worsens_with_budget_or_bandwidth() -> None:
    for seed in range(25):
        problem = random_problem(seed)
        least = max(0, least_budget(problem))
        budgets = range(least, max(problem.memory_bytes) + 1)
        found = [optimum(msgspec.structs.replace(problem, budget_bytes=budget)) for budget in budgets]
        assert all(less is not None and more is not None and more <= less for less, more in pairwise(found))
        for rate in (1, 2, 4):
            slow, fast = (
                optimum(
                    msgspec.structs.replace(problem, link=SwapLink(out_bytes_per_s=r, in_bytes_per_s=r, latency_us=1))
                )
                for r in (rate * 1_000_000, rate * 2_000_000)
            )
            assert (slow is None) == (fast is None)
            assert slow is None or fast is None or fast <= slow
