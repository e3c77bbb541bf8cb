"""Capuchin's policy: the longest free time first, in-triggers by one's own link, and learning from stalls."""

import msgspec
import pytest

from solvers.ir import InvalidInput, Limits, Status, SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.swap import CapuchinSwap, GreedySwap
from solvers.swap.capuchin import OWN_FAILED, free_time
from solvers.swap.evaluate import instance
from solvers.swap.instances import llama2
from tests.solvers.swap.brute_force import assert_answered, random_problem


def two_of_three(budget_bytes: int = 30) -> SwapProblem:
    """Three tensors of 10 bytes (10 us a transfer) and ten ops of 10 us; 50 bytes at the turn, so two must be gone.

    Free times: `outer` spans ops 1…9 (80 us before op 9 begins), 80 − 20 = 60; `middle` 60 − 20 = 40; `inner` 20.
    """
    names = {"inner": (2, 7), "middle": (1, 8), "outer": (0, 9)}
    return SwapProblem(
        name="two of three",
        budget_bytes=budget_bytes,
        ops=tuple(SwapOp(name=f"op{j}", time_us=10, phase="forward" if j < 5 else "backward") for j in range(10)),
        memory_bytes=(10, 20, 30, 30, 50, 50, 30, 30, 20, 10),
        tensors=tuple(
            SwapTensor(id=name, bytes=10, last_forward_use=first, first_backward_use=last)
            for name, (first, last) in names.items()
        ),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
    )


def swaps_of(problem: SwapProblem, solver: CapuchinSwap) -> dict[int | str, int]:
    plan = solver.solve(problem, Limits()).plan
    assert plan is not None
    return {swap.tensor: swap.swap_in_at for swap in plan.swaps}


def test_the_longest_free_times_leave_and_return_one_transfer_before_their_use() -> None:
    problem = two_of_three()
    assert [free_time(instance(problem), tensor) for tensor in range(3)] == [20, 40, 60]
    assert swaps_of(problem, CapuchinSwap()) == {"outer": 8, "middle": 7}
    answer = CapuchinSwap().solve(problem, Limits())
    assert (answer.objective, answer.base, answer.bound) == (100, 100, None)
    assert answer.status is Status.FEASIBLE
    assert answer.reason is None


def test_a_tensor_that_would_return_too_early_to_save_anything_stays() -> None:
    problem = two_of_three()
    early = SwapTensor(id="early", bytes=10, last_forward_use=0, first_backward_use=3)
    alone = msgspec.structs.replace(problem, tensors=(early,))
    assert CapuchinSwap().solve(alone, Limits()).status is Status.INFEASIBLE
    beside = msgspec.structs.replace(problem, tensors=(early, *problem.tensors))
    assert "early" not in swaps_of(beside, CapuchinSwap())


def contended(parts: int = 1) -> SwapProblem:
    """Two tensors needed at 90 us, each transfer 10 us: both triggers are put at 80, so the second comes 10 us late.

    Ten ops of 10 us, each divided into so many `parts`.
    """
    memory = (10, 20, 30, 30, 50, 50, 30, 30, 30, 30)
    return SwapProblem(
        name="contended",
        budget_bytes=30,
        ops=tuple(
            SwapOp(name=f"op{j}.{part}", time_us=10 // parts, phase="forward" if j < 5 else "backward")
            for j in range(10)
            for part in range(parts)
        ),
        memory_bytes=tuple(use for use in memory for _ in range(parts)),
        tensors=tuple(
            SwapTensor(id=name, bytes=10, last_forward_use=parts * (first + 1) - 1, first_backward_use=9 * parts)
            for name, first in (("one", 0), ("two", 1))
        ),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
    )


def stall(problem: SwapProblem, iterations: int, step: float = 0.05) -> float:
    answer = CapuchinSwap(iterations=iterations, step=step).solve(problem, Limits())
    assert answer.objective is not None
    assert answer.base is not None
    return answer.objective - answer.base


def test_contention_stalls_until_feedback_has_moved_the_triggers() -> None:
    assert stall(contended(), iterations=0) == 10
    assert stall(contended(), iterations=1) == 0  # the last op that begins before 80 − 1 us is a whole op earlier


def test_feedback_learns_at_its_step() -> None:
    # 5 % of 10 us round up to 1 us an iteration. The two take turns in being late, so 20 iterations gain 10 us.
    fine = contended(parts=10)
    learned = [stall(fine, iterations) for iterations in range(21)]
    assert learned[0] == 10
    assert learned == sorted(learned, reverse=True)
    assert 0 < learned[10] < 10
    assert learned[20] == 0
    assert stall(fine, iterations=1, step=1.0) == 0


def test_every_answer_is_a_plan_of_the_stated_objective_or_a_proof() -> None:
    failed = 0
    for seed in range(150):
        problem = random_problem(seed)
        answer = CapuchinSwap().solve(problem, Limits())
        assert_answered(problem, answer)
        failed += answer.reason == OWN_FAILED
    assert failed > 0, "some of these budgets are too tight for in-triggers before the use"


def test_its_stall_on_the_llama_is_what_contention_makes_of_it() -> None:
    problem = llama2(layers=8, budget_fraction=0.5, link_bytes_per_s=50_000_000_000)
    blind, learned, greedy = (
        solver.solve(problem, Limits()) for solver in (CapuchinSwap(iterations=0), CapuchinSwap(), GreedySwap())
    )
    assert blind.objective is not None
    assert learned.objective is not None
    assert greedy.objective == greedy.base == blind.base
    assert blind.base is not None
    assert blind.base < learned.objective < blind.objective


@pytest.mark.parametrize("options", [{"iterations": -1}, {"step": 0.0}, {"step": 1.5}, {"step": float("nan")}])
def test_meaningless_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="give"):
        CapuchinSwap(**options)  # type: ignore[arg-type]
