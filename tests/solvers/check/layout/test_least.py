"""The least device memory of layout problems: every decision of tiny ones is tried."""

from itertools import chain, combinations, product

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.check.layout import least as judged_least
from solvers.check.layout.judge import device_peak, host_bytes, judge_layout
from solvers.check.layout.least import least_device_bytes
from solvers.ir import LayoutPlan, LayoutProblem, Solution, Status
from solvers.ir.codec import plan_file, problem_sha256
from solvers.ir.layout import POLICIES
from tests.solvers.check.layout.test_judge import EIGHT
from tests.strategies import layout_problems


def tried_bytes(problem: LayoutProblem) -> int:
    """The least device memory of the decisions that fit the host, with as few buffers as the judge lets pass."""
    count, best = len(problem.chunks), None
    subsets = chain.from_iterable(combinations(range(count), size) for size in range(count + 1))
    for persistent in subsets:
        for policies in product(*(POLICIES if block.choice else ("keep",) for block in problem.blocks)):
            for buffers in range(count + 1):
                decision = LayoutPlan(persistent=persistent, buffers=buffers, policies=policies)
                verdict = judge_layout(problem, decision)
                if any(violation.startswith("buffers is") for violation in verdict.violations):
                    continue
                if host_bytes(problem, decision) <= problem.host_bytes:
                    need = device_peak(problem, decision)[0]
                    best = need if best is None else min(best, need)
                break
    assert best is not None
    return best


@settings(max_examples=60)
@given(layout_problems(max_blocks=3, max_chunks=3))
def test_every_decision_lies_between_the_two_numbers(problem: LayoutProblem) -> None:
    low, high = least_device_bytes(problem)
    assert low <= tried_bytes(problem) <= high


@settings(max_examples=60)
@given(layout_problems(max_blocks=4, max_chunks=2))
def test_with_a_roomy_host_the_two_are_one(problem: LayoutProblem) -> None:
    roomy = replace(problem, host_bytes=2**53)
    low, high = least_device_bytes(roomy)
    assert low == high == tried_bytes(roomy)


@settings(max_examples=40)
@given(layout_problems(max_blocks=4, max_chunks=2))
def test_a_walk_that_gives_up_still_encloses(problem: LayoutProblem) -> None:
    low, high = least_device_bytes(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judged_least, "LABELS", 0)
        assert least_device_bytes(problem)[0] <= low <= high <= least_device_bytes(problem)[1]


def test_swapping_early_blocks_pays_where_inputs_are_large() -> None:
    """Interval 3, A = 10, I = 4, own 13: checkpoints alone need 7·4 + 13 in the last backward.

    With block 0 swapped that is 6·4 + 13, and no pass before needs more; no policies at all need less.
    """
    large = replace(EIGHT, blocks=tuple(replace(block, input_bytes=4) for block in EIGHT.blocks))
    everything = (LayoutPlan(persistent=(), buffers=1, policies=p) for p in product(POLICIES, repeat=8))
    low, high = least_device_bytes(large)
    assert low == high == 7 + 5 + 24 + 13
    assert low == min(device_peak(large, decision)[0] for decision in everything)


def test_a_small_host_keeps_the_first_chunks_on_the_device() -> None:
    """Eight chunks of 20 bytes on the host; with 100 there, three stay: 3·13, one buffer, and 7 + 13 of activations."""
    low, high = least_device_bytes(replace(EIGHT, host_bytes=100))
    assert (low, high) == (32, 3 * 13 + 7 + 5 + 20)


def refusal(problem: LayoutProblem, least: int, said: str) -> tuple[str, ...]:
    """What `check` finds in an infeasible answer besides that there is no decision."""
    solution: Solution[LayoutPlan] = Solution(
        status=Status.INFEASIBLE, plan=None, solver="test", least_budget_bytes=least, reason=said
    )
    verdict = check_plan(problem, plan_file(solution, "layout", problem_sha256(problem)))
    assert verdict.violations[0] == "the answer is infeasible: there is no decision to judge"
    return verdict.violations[1:]


def test_refusals_are_held_against_the_least_device_memory() -> None:
    """Figure 2's problem needs 32 bytes."""
    small = replace(EIGHT, device_bytes=31)
    assert refusal(small, 32, "exactly 32 bytes are needed, with 160 bytes of host memory") == ()
    assert refusal(replace(small, device_bytes=20), 30, "at least 30 bytes are needed") == ()
    least = "but the least feasible budget is 32"
    assert f"least_budget_bytes is 33, {least}" in refusal(small, 33, "at least 33 bytes are needed")
    assert f"least_budget_bytes is 30, {least}" in refusal(small, 30, "exactly 30 bytes are needed")
    within = "status is infeasible, but least_budget_bytes 31 is within budget 31"
    assert within in refusal(small, 31, "at least 31 bytes are needed")
    valid = "status is infeasible, but the problem has a valid decision"
    assert valid in refusal(EIGHT, 1001, "exactly 1001 bytes are needed")


def test_a_small_host_leaves_the_truth_between_two_numbers() -> None:
    """With 100 bytes of host memory, which hold five chunks, it is between 32 and 71 bytes."""
    small = replace(EIGHT, device_bytes=31, host_bytes=100)
    for least in (32, 50, 71):
        assert refusal(small, least, f"exactly {least} bytes are needed") == ()
    words = "least_budget_bytes is 72, but the least feasible budget is between 32 and 71"
    assert words in refusal(small, 72, "exactly 72 bytes are needed")
