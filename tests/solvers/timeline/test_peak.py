"""The peak that a schedule promises, and the one that its timeline shows: two ways to count the same bytes."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solvers.check.swap.judge import judge_swap
from solvers.ir import SwapLink, SwapOp, SwapPlan, SwapProblem
from solvers.swap.lower import lower
from solvers.timeline import promised_peak_bytes, simulate
from tests.strategies import swap_plans, swap_problems


def sizes(problem: SwapProblem) -> dict[str | int, int]:
    return {tensor.id: tensor.bytes for tensor in problem.tensors}


@settings(max_examples=120)
@given(st.data())
def test_the_timeline_shows_the_promised_peak(data: st.DataObject) -> None:
    problem = data.draw(swap_problems())
    plan = data.draw(swap_plans(problem))
    assume(not judge_swap(problem, plan).violations)
    schedule = lower(problem, plan)
    assert simulate(problem, schedule).peak_bytes == promised_peak_bytes(problem.memory_bytes, sizes(problem), schedule)


def test_an_op_that_takes_no_time_counts() -> None:
    """Op 1 needs 30 bytes for no time at all: op 2 begins at the same microsecond, with 10."""
    problem = SwapProblem(
        name="no time",
        budget_bytes=30,
        ops=tuple(SwapOp(name="", time_us=time, phase="forward", launch_us=0) for time in (5, 0, 5)),
        memory_bytes=(10, 30, 10),
        tensors=(),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
        launch_us=1,
    )
    report = simulate(problem, lower(problem, SwapPlan(swaps=())))
    assert (report.peak_bytes, report.peak_at_us) == (30, 5)
    assert report.memory == ((0, 10), (5, 10))
