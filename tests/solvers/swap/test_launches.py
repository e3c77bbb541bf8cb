"""Launching: what the host's time means for a plan, told by hand, kernel by kernel, and by trying everything."""

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.swap.judge import base_us, judge_swap, least_budget_bytes
from solvers.engines import solve
from solvers.ir import InvalidProblem, Limits, Status, SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.ir.codec import problem_from_raw, problem_sha256, problem_to_raw
from solvers.swap import CapuchinSwap, GreedySwap, MilpSwap
from solvers.swap.discrete import discrete
from solvers.swap.evaluate import choices_of, evaluate, instance, least_budget
from solvers.swap.floor import floor_ticks
from solvers.swap.launches import launches_of, unswapped_us
from solvers.swap.limited import cost_of_missing, limited
from solvers.swap.relaxation import fluid
from tests.solvers.swap.brute_force import assert_answered, launched, meaning, optimum, random_problem
from tests.strategies import swap_plans, swap_problems

SEEDS = range(40)
QUICK = Limits(time_s=20.0)


def story(launch_us: int, transfer_us: int, budget: int = 10) -> SwapProblem:
    """Four ops of 2 us; an 8-byte tensor waits from op 0 to op 3; the link moves 1 byte per us and has no latency."""
    return SwapProblem(
        name="story",
        budget_bytes=budget,
        ops=tuple(
            SwapOp(name=f"op{j}", time_us=2, phase="forward" if j < 2 else "backward", launch_us=launch_us)
            for j in range(4)
        ),
        memory_bytes=(10, 10, 12, 10),
        tensors=(SwapTensor(id="t", bytes=8, last_forward_use=0, first_backward_use=3),),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
        launch_us=transfer_us,
    )


def test_the_step_without_swaps_is_the_host_s_where_launches_are_longer_than_ops() -> None:
    # Launched at 5, 10, 15, 20: each op waits for its launch, the last one ends at 22.
    problem = story(launch_us=5, transfer_us=1, budget=12)
    assert unswapped_us(problem.ops) == [0, 7, 12, 17, 22]
    assert base_us(problem) == instance(problem).base == 22
    assert GreedySwap().solve(problem, QUICK).objective == 22


def test_a_stall_lets_the_host_run_ahead_and_a_transfer_s_launch_holds_ops_up() -> None:
    # Op 0 is launched at 5 and ends at 7. The swap-out is issued at 6, begins at 7, ends at 15. Op 1 is launched at 11
    # and ends at 13; op 2 finds memory at 15, is launched at 16, ends at 18. The swap-in is issued at 17 and runs
    # 18…26; op 3 is launched at 22 and runs 26…28: 4 us beyond what launching alone (24) would take.
    timeline = evaluate(instance(story(launch_us=5, transfer_us=1)), [(0, 3)])
    assert timeline is not None
    assert (timeline.makespan, timeline.out_end, timeline.in_end) == (28, [15], [26])
    # Ops known only by what they take in the unswapped step (7, 5, 5, 5) would foretell a longer step than 28.
    waiting = [7, 5, 5, 5]
    plain = story(launch_us=0, transfer_us=0)
    ops = tuple(msgspec.structs.replace(op, time_us=time) for op, time in zip(plain.ops, waiting, strict=True))
    foretold = evaluate(instance(msgspec.structs.replace(plain, ops=ops)), [(0, 3)])
    assert foretold is not None
    assert foretold.makespan > timeline.makespan


def test_where_the_host_waits_it_runs_ahead_no_more() -> None:
    problem = story(launch_us=1, transfer_us=1)
    ops = list(problem.ops)
    ops[2] = msgspec.structs.replace(ops[2], host_waits=True)
    # Op 2 is ready at 11 (the swap-out is issued at 2, runs 3…11) and ends at 13; only then the host issues the swap-in
    # at 14, which runs 14…22; op 3 ends at 24.
    timeline = evaluate(instance(msgspec.structs.replace(problem, ops=tuple(ops))), [(0, 3)])
    assert timeline is not None
    assert timeline.makespan == 24


def test_an_op_of_many_kernels_is_known_by_three_numbers() -> None:
    """Its own time, the host's, and the tail: exact whenever the device and the host come to it."""
    source = random.Random(3)
    for _ in range(300):
        launch = source.randint(1, 9)
        kernels = [source.randint(1, 12) for _ in range(source.randint(1, 6))]
        device, host = source.randint(0, 60), source.randint(0, 60)
        end, issued = device, host
        for kernel in kernels:
            issued += launch
            end = max(end, issued) + kernel
        suffixes = [launch * (place + 1) + sum(kernels[place:]) for place in range(len(kernels))]
        tail = max(suffixes) - launch * len(kernels)
        assert 0 <= tail <= sum(kernels)
        assert end == max(device + sum(kernels), issued + tail)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_where_launching_costs_nothing_the_fields_change_nothing(data: st.DataObject) -> None:
    problem = data.draw(swap_problems())
    ops = tuple(msgspec.structs.replace(op, launch_us=0, time_us=max(1, op.time_us)) for op in problem.ops)
    free = msgspec.structs.replace(problem, ops=ops, launch_us=0)
    bare = tuple(SwapOp(name=op.name, time_us=op.time_us, phase=op.phase) for op in ops)
    plain = msgspec.structs.replace(problem, ops=bare, launch_us=0)
    plan = data.draw(swap_plans(free))
    listed = tuple(choices_of(free, plan))
    one, two = evaluate(instance(free), listed), evaluate(instance(plain), listed)
    assert one == two
    assert meaning(free, listed) == meaning(plain, listed)
    assert judge_swap(free, plan) == judge_swap(plain, plan)
    assert launches_of(free) is None
    raw = problem_to_raw(plain)
    assert "launch_us" not in raw
    assert all(set(op) == {"name", "time_us", "phase"} for op in raw["ops"])
    assert problem_from_raw(raw) == plain
    assert problem_sha256(plain) == problem_sha256(problem_from_raw(raw))


@settings(max_examples=100, deadline=None)
@given(swap_problems(max_ops=8, max_tensors=0), st.data())
def test_the_clocks_after_many_ops_are_found_at_once(problem: SwapProblem, data: st.DataObject) -> None:
    quiet = tuple(msgspec.structs.replace(op, host_waits=False, launch_us=op.launch_us + 1) for op in problem.ops)
    costs = launches_of(msgspec.structs.replace(problem, ops=quiet))
    assert costs is not None
    first = data.draw(st.integers(0, len(quiet)))
    stop = data.draw(st.integers(first, len(quiet)))
    clock, host = begin = data.draw(st.tuples(st.integers(0, 50), st.integers(0, 50)))
    for op in quiet[first:stop]:
        host += op.launch_us
        clock = max(clock + op.time_us, host + op.after_launch_us)
    ticks = problem.link.ticks
    found = costs.advance(first, stop, begin[0] * ticks, begin[1] * ticks)
    assert found == (clock * ticks, host * ticks)


def test_the_optimum_never_worsens_with_budget_or_bandwidth() -> None:
    for seed in range(25):
        problem = launched(random_problem(seed), seed)
        plain = random_problem(seed)
        assert least_budget(problem) == least_budget(plain)
        assert least_budget_bytes(problem) == least_budget_bytes(plain)
        least = max(0, least_budget(problem))
        budgets = range(least, max(problem.memory_bytes) + 1)
        found = [optimum(msgspec.structs.replace(problem, budget_bytes=budget)) for budget in budgets]
        assert all(less is not None and more is not None and more <= less for less, more in pairwise(found))
        assert found[-1] == unswapped_us(problem.ops)[-1] == base_us(problem)
        if least:
            assert optimum(msgspec.structs.replace(problem, budget_bytes=least - 1)) is None
        slow, fast = (
            optimum(msgspec.structs.replace(problem, link=SwapLink(out_bytes_per_s=r, in_bytes_per_s=r, latency_us=1)))
            for r in (1_000_000, 2_000_000)
        )
        assert (slow is None) == (fast is None)
        assert slow is None or fast is None or fast <= slow


def test_every_solver_answers_and_the_exact_answer_equals_trying_everything() -> None:
    searched = 0
    for seed in SEEDS:
        problem = launched(random_problem(seed), seed)
        best, answer = optimum(problem), MilpSwap().solve(problem, QUICK)
        for solver in (GreedySwap(), GreedySwap(printed=True), CapuchinSwap()):
            assert_answered(problem, solver.solve(problem, QUICK))
        if best is None:
            assert answer.status is Status.INFEASIBLE
            continue
        assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, best, best), seed
        searched += "CP-SAT" in (answer.engine or "")
    assert searched >= 10


def test_no_bound_exceeds_the_optimum_and_launches_raise_it() -> None:
    raised = 0
    for seed in range(120):
        problem = launched(random_problem(seed), seed)
        best, given = optimum(problem), instance(problem)
        if best is None or not given.busy:
            continue
        bounds = []
        horizon = best * given.ticks
        relaxation = fluid(given, horizon)
        answer = solve(relaxation.model, QUICK, "highs")
        assert answer.row_duals is not None
        bounds += [relaxation.bound_ticks(relaxation.model.dual_bound(answer.row_duals)), floor_ticks(given)]
        whole = discrete(given, horizon, given.busy)
        if whole is not None and seed % 4 == 0:
            searched = solve(whole.model, QUICK, "highs").bound
            assert searched is not None
            bounds.append(whole.bound_ticks(searched) * (1 - 1e-6))
        assert max(bounds) <= horizon + 1e-6, seed
        raised += max(bounds) > given.base + 1e-6
    assert raised > 20


def test_limited_information_knows_no_launches_but_the_whole_step() -> None:
    problem = launched(random_problem(2), 2)
    guess = limited(problem)
    assert not guess.has_launches
    assert sum(op.time_us for op in guess.ops) == max(len(guess.ops), base_us(problem))
    missing = cost_of_missing(problem, GreedySwap(), QUICK)
    assert missing.limited_us is not None
    assert missing.full_us is not None
    assert missing.limited_us >= base_us(problem)


def test_times_that_make_no_sense_are_refused() -> None:
    op = SwapOp(name="a", time_us=3, phase="forward", launch_us=1, tail_us=4)
    with pytest.raises(InvalidProblem, match=r"ops\[0\].tail_us is 4, above its time_us 3: lower it"):
        msgspec.structs.replace(story(0, 0), ops=(op, *story(0, 0).ops[1:]))
    nothing = SwapOp(name="a", time_us=0, phase="forward")
    with pytest.raises(InvalidProblem, match=r"ops\[0\].time_us is 0, but `int` >= 1 is expected where no launch_us"):
        msgspec.structs.replace(story(0, 0), ops=(nothing, *story(0, 0).ops[1:]))
