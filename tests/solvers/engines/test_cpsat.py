"""Native CP-SAT models: intervals, limits and watch without a parameter of the engine in sight."""

import pytest

from solvers.engines.cpsat import CpModel, IntVar, LinearExpr, solve_cpsat
from solvers.ir.errors import InvalidProblem
from solvers.ir.solution import Limits, Status


def two_jobs(horizon: int) -> tuple[CpModel, list[IntVar]]:
    """Jobs of 3 and 4 on one machine: the last ends at 7."""
    model = CpModel()
    starts = [model.new_int_var(0, horizon - size, f"start{size}") for size in (3, 4)]
    model.add_no_overlap(
        [model.new_fixed_size_interval_var(s, size, "") for s, size in zip(starts, (3, 4), strict=True)]
    )
    end = model.new_int_var(0, horizon, "end")
    model.add_max_equality(end, [starts[0] + 3, starts[1] + 4])
    model.minimize(end + 100)
    return model, [*starts, end]


def hard_packing() -> CpModel:
    """Sixty tasks on a machine of capacity ten: solutions at once, no proof for a long while."""
    model, ends = CpModel(), []
    intervals, demands = [], []
    for task in range(60):
        size, demand = 3 + task * 7 % 11, 1 + task * 5 % 7
        start = model.new_int_var(0, 600, "")
        intervals.append(model.new_fixed_size_interval_var(start, size, ""))
        demands.append(demand)
        ends.append(start + size)
    model.add_cumulative(intervals, demands, 10)
    model.minimize(LinearExpr.sum([(1 + i * 3 % 5) * end for i, end in enumerate(ends)]))
    return model


def test_an_interval_model_is_solved_and_read() -> None:
    model, (first, second, end) = two_jobs(20)
    answer = solve_cpsat(model, Limits())
    assert (answer.status, answer.objective, answer.bound, answer.reason) == (Status.OPTIMAL, 107, 107, None)
    assert answer.value(end) == 7
    assert sorted((answer.value(first), answer.value(second))) in ([0, 3], [0, 4])
    assert answer.engine.startswith("CP-SAT 9.")


def test_infeasible_has_no_values_to_read() -> None:
    model, (first, *_) = two_jobs(6)
    answer = solve_cpsat(model, Limits())
    assert (answer.status, answer.objective, answer.bound) == (Status.INFEASIBLE, None, None)
    with pytest.raises(ValueError, match="the status is infeasible"):
        answer.value(first)


def test_literals_and_a_model_without_an_objective() -> None:
    model = CpModel()
    a, b = model.new_bool_var("a"), model.new_bool_var("b")
    model.add_implication(a, b)
    model.add(a == 1)
    answer = solve_cpsat(model, Limits())
    assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, 0, 0)
    assert answer.holds(b)
    assert not answer.holds(~b)


def test_stops_keep_the_best_and_its_bound() -> None:
    seen = []

    def watch(incumbent: float | None, bound: float | None, _elapsed_s: float) -> bool:
        seen.append((incumbent, bound))
        return incumbent is not None

    answer = solve_cpsat(hard_packing(), Limits(time_s=60), watch)
    assert answer.status is Status.FEASIBLE
    assert answer.objective is not None
    assert answer.bound is not None
    assert 0 < answer.bound < answer.objective
    assert seen[-1][0] is not None
    assert answer.reason is not None
    assert "watch" in answer.reason


def test_work_is_deterministic_and_a_gap_is_no_optimum() -> None:
    first, second = (solve_cpsat(hard_packing(), Limits(time_s=60, work=0.3, seed=5)) for _ in range(2))
    assert first.status is Status.FEASIBLE
    assert (first.objective, first.bound) == (second.objective, second.bound)
    wide = solve_cpsat(hard_packing(), Limits(time_s=60, gap=0.99))
    assert wide.status is Status.FEASIBLE
    assert wide.reason is not None
    assert "gap" in wide.reason


def test_a_search_that_never_began_claims_only_what_is_obvious() -> None:
    """CP-SAT reports the bound 0 then; the objective may be as low as −5·9 + 1."""
    model = CpModel()
    x = model.new_int_var(0, 9, "x")
    y = model.new_int_var(-2, 9, "y")
    model.add(x * 3 + y * 7 == 11)
    model.minimize(-5 * x + 4 * y + 1)
    answer = solve_cpsat(model, Limits(work=0))
    assert answer.status is Status.UNKNOWN
    assert answer.bound == -5 * 9 + 4 * -2 + 1


def test_objectives_that_would_turn_bounds_around_are_refused() -> None:
    model = CpModel()
    x = model.new_int_var(0, 9, "x")
    model.maximize(x)
    with pytest.raises(InvalidProblem, match="minimise the negated objective"):
        solve_cpsat(model, Limits())
    model.minimize(0.5 * x)
    with pytest.raises(InvalidProblem, match="scale them to integers"):
        solve_cpsat(model, Limits())


def test_an_invalid_model_says_why() -> None:
    model = CpModel()
    model.new_int_var(0, 2**62, "x")
    y = model.new_int_var(0, 2**62, "y")
    model.add(y * 2**10 >= 7)
    with pytest.raises(InvalidProblem, match="CP-SAT refused the model: "):
        solve_cpsat(model, Limits())
