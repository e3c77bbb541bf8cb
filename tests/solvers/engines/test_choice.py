"""Every engine, through the one door: right answers, honest bounds, limits kept, the same answer twice."""

import importlib.util
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.engines import LinearModel, ModelBuilder, choose, solve
from solvers.ir.errors import EngineMissing, InvalidInput, InvalidProblem
from solvers.ir.solution import Limits, Status
from tests.solvers.engines.models import (
    ENGINES,
    HARD,
    Program,
    brute_force,
    integer_program,
    knapsack,
    market_split,
    programs,
)

every_engine = pytest.mark.parametrize("engine", ENGINES)


@every_engine
@settings(max_examples=40, deadline=None)
@given(program=programs())
def test_random_integer_programs_equal_brute_force(engine: str, program: Program) -> None:
    model, best = integer_program(*program), brute_force(*program)
    answer = solve(model, Limits(time_s=30), engine=engine)
    if best is None:
        assert (answer.status, answer.x, answer.objective) == (Status.INFEASIBLE, None, None)
        return
    assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, best, best)
    assert answer.x is not None
    assert model.violations(answer.x) == ()


@st.composite
def linear_programs(draw: st.DrawFn) -> LinearModel:
    """Bounded continuous problems with quarters for coefficients: range rows, equalities, columns without an end."""
    quarters = st.integers(-20, 20).map(lambda n: n / 4)
    builder = ModelBuilder("lp")
    columns = draw(st.integers(1, 5))
    for _ in range(columns):
        low, cost = draw(quarters), draw(quarters)
        endless = cost >= 0 and draw(st.booleans())
        builder.column(low, np.inf if endless else low + draw(st.integers(0, 40)) / 4, cost=cost)
    for _ in range(draw(st.integers(0, 4))):
        low = draw(st.integers(-60, 20)) / 4
        width = draw(st.sampled_from([0.0, 2.5, 10.0, np.inf]))
        builder.row(range(columns), draw(st.lists(quarters, min_size=columns, max_size=columns)), low, low + width)
    return builder.build()


@settings(max_examples=60, deadline=None)
@given(model=linear_programs())
def test_duals_prove_the_optimum_of_a_linear_program(model: LinearModel) -> None:
    """A feasible x and duals whose bound meets its cost are a complete proof; both engines must agree besides."""
    answers = [solve(model, engine=engine) for engine in ("highs", "gurobi")]
    assert len({answer.status for answer in answers}) == 1
    for answer in answers:
        if answer.status is Status.INFEASIBLE:
            continue
        assert answer.status is Status.OPTIMAL
        assert answer.x is not None
        assert answer.row_duals is not None
        assert answer.reduced_costs is not None
        assert model.violations(answer.x) == ()
        assert model.dual_bound(answer.row_duals) == pytest.approx(answer.objective, abs=1e-6)
        np.testing.assert_allclose(answer.reduced_costs, model.reduced_costs(answer.row_duals))
        # Complementary slackness: a price on a column that rests on no limit would be a false proof.
        free = (answer.x > model.lower + 1e-6) & (answer.x < model.upper - 1e-6)
        np.testing.assert_allclose(answer.reduced_costs[free], 0, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_start_times_come_out_alike_on_engines_with_and_without_fractions(data: st.DataObject) -> None:
    """Continuous start times with switchable delays: CP-SAT takes them as integers by proof, HiGHS as they are."""
    builder = ModelBuilder("delays")
    times = builder.columns(3, 0, 12, cost=[data.draw(st.integers(-3, 3)) for _ in range(3)])
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = data.draw(st.permutations(range(3)))[:2]
        skipped = builder.binary(cost=data.draw(st.integers(0, 5)))
        delay = data.draw(st.integers(1, 9))
        builder.row([times[j], times[i], skipped], [1, -1, 12], lower=delay)
    model = builder.build()
    exact, float_ = solve(model, engine="cpsat"), solve(model, engine="highs")
    assert exact.status is float_.status
    assert exact.objective == pytest.approx(float_.objective, abs=1e-5)  # HiGHS uses up its tolerance: 2.999999 for 3


@every_engine
def test_a_model_without_solutions_is_infeasible_with_a_reason(engine: str) -> None:
    """2x + 2y = 1 has real solutions and no integer ones."""
    answer = solve(integer_program([1, 1], [(0, 5), (0, 5)], [([2, 2], 1, 1)]), engine=engine)
    assert (answer.status, answer.x, answer.bound) == (Status.INFEASIBLE, None, None)
    assert answer.reason is not None


@pytest.mark.parametrize("engine", ["highs", "gurobi"])
@pytest.mark.parametrize("integer", [False, True])
def test_an_unbounded_model_is_an_error(engine: str, integer: bool) -> None:
    builder = ModelBuilder("endless")
    x = builder.columns(2, integer=integer, cost=[-1, 0])
    builder.row(x, [1, -1], upper=3)
    with pytest.raises(InvalidProblem, match=r"^endless: .* falls without limit: "):
        solve(builder.build(), engine=engine)


@pytest.mark.parametrize("engine", ["highs", "gurobi"])
def test_an_unbounded_relaxation_without_integer_points_is_infeasible(engine: str) -> None:
    builder = ModelBuilder()
    x = builder.columns(3, 0, [np.inf, 5, 5], integer=True, cost=[-1, 0, 0])
    builder.row(x[1:], [2, 2], lower=1, upper=1)
    assert solve(builder.build(), engine=engine).status is Status.INFEASIBLE


@every_engine
def test_time_is_kept_and_the_bound_is_true(engine: str) -> None:
    answer = solve(HARD, Limits(time_s=1.0), engine=engine)
    assert answer.solve_time_s < 8
    assert answer.status is Status.FEASIBLE
    assert answer.bound is not None
    assert answer.objective is not None
    assert answer.bound < answer.objective
    assert answer.reason is not None
    assert "time" in answer.reason
    assert answer.x is not None
    assert HARD.violations(answer.x) == ()


@every_engine
def test_no_limit_is_a_limit_too(engine: str) -> None:
    assert solve(knapsack(), Limits(time_s=np.inf), engine=engine).objective == -355


@every_engine
def test_no_solution_in_time_is_unknown_and_its_bound_still_true(engine: str) -> None:
    """Costs are −1 each for 30 columns: a bound of 0, CP-SAT's default before it starts, would be a lie."""
    answer = solve(market_split(), Limits(time_s=20, work=0), engine=engine)
    assert (answer.status, answer.objective, answer.x) == (Status.UNKNOWN, None, None)
    assert answer.bound is None or -30 <= answer.bound <= -10
    assert answer.reason is not None


@pytest.mark.parametrize(("engine", "work"), [("highs", 3), ("cpsat", 0.2), ("gurobi", 0.2)])
def test_same_seed_and_work_give_the_same_answer(engine: str, work: float) -> None:
    limits = Limits(time_s=60, work=work, threads=1, seed=7)
    model = knapsack(60, 20, 2) if engine == "highs" else HARD
    first, second = (solve(model, limits, engine=engine) for _ in range(2))
    assert first.status is Status.FEASIBLE
    assert first.solve_time_s < 30
    assert (first.objective, first.bound) == (second.objective, second.bound)
    np.testing.assert_array_equal(first.x, second.x)


@every_engine
def test_a_gap_ends_the_search_and_is_not_called_optimal(engine: str) -> None:
    answer = solve(HARD, Limits(time_s=60, gap=0.2), engine=engine)
    assert answer.status is Status.FEASIBLE
    assert answer.gap is not None
    assert 0 < answer.gap <= 0.2
    assert answer.solve_time_s < 30


@every_engine
def test_threads_change_nothing_about_the_optimum(engine: str) -> None:
    objectives = {solve(knapsack(), Limits(threads=threads), engine=engine).objective for threads in (1, 2, 1)}
    assert objectives == {-355}


@every_engine
def test_a_start_is_never_made_worse(engine: str) -> None:
    """Even with no time at all the given solution comes back; a partial one is completed or ignored."""
    best = solve(knapsack(), engine=engine)
    assert best.x is not None
    again = solve(knapsack(), Limits(time_s=0), engine=engine, start=best.x)
    assert again.objective == best.objective
    partial = np.where(np.arange(20) < 10, best.x, np.nan)
    assert solve(knapsack(), engine=engine, start=partial).objective == best.objective
    with pytest.raises(InvalidInput, match=r"start has shape \(3,\)"):
        solve(knapsack(), engine=engine, start=np.zeros(3))


@every_engine
def test_watch_sees_incumbents_and_bounds_and_stops(engine: str) -> None:
    seen: list[tuple[float | None, float | None]] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append((incumbent, bound))
        return incumbent is not None and bound is not None and elapsed_s > 0.3

    answer = solve(HARD, Limits(time_s=60), engine=engine, watch=watch)
    assert answer.solve_time_s < 20
    assert answer.status is Status.FEASIBLE
    assert answer.reason is not None
    assert "stopped by the caller's watch" in answer.reason
    incumbent, bound = seen[-1]
    assert incumbent is not None
    assert bound is not None
    assert answer.objective is not None
    assert answer.objective <= incumbent + 1e-6
    assert bound <= answer.objective


@every_engine
def test_watch_sees_the_units_of_the_model(engine: str) -> None:
    """Quarters and a constant: CP-SAT searches in scaled integers, the caller is not told those."""
    cost = -np.arange(1.0, 41.0) / 4
    builder = ModelBuilder()
    x = builder.binaries(40, cost=cost)
    weights = np.random.default_rng(0).integers(1, 40, (15, 40))
    builder.rows(np.repeat(np.arange(15), 40), np.tile(x, 15), weights.ravel(), upper=weights.sum(1) // 3)
    builder.add_offset(1000.25)
    incumbents: list[float] = []

    def watch(incumbent: float | None, _bound: float | None, _elapsed_s: float) -> bool:
        incumbents.extend([] if incumbent is None else [incumbent])
        return len(incumbents) > 3

    answer = solve(builder.build(), Limits(time_s=20), engine=engine, watch=watch)
    assert answer.objective is not None
    assert incumbents
    assert all(1000.25 + cost.sum() <= value <= 1000.25 for value in incumbents)
    assert answer.objective <= min(incumbents) + 1e-9


@every_engine
def test_an_error_in_watch_reaches_the_caller_and_the_engine_works_on(engine: str) -> None:
    def watch(*_: object) -> bool:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        solve(HARD, Limits(time_s=60), engine=engine, watch=watch)
    assert solve(knapsack(), engine=engine).objective == -355


@every_engine
def test_a_watch_may_solve_too(engine: str) -> None:
    inner = []

    def watch(*_: object) -> bool:
        inner.append(solve(knapsack(), engine=engine).objective)
        return True

    solve(HARD, Limits(time_s=60), engine=engine, watch=watch)
    assert inner == [-355]


@every_engine
def test_engines_are_silent(engine: str, capfd: pytest.CaptureFixture[str]) -> None:
    solve(knapsack(), engine=engine)
    assert capfd.readouterr() == ("", "")


@every_engine
def test_a_missing_engine_is_named_with_its_remedy(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"highs": "highspy", "cpsat": "ortools", "gurobi": "gurobipy"}[engine]
    monkeypatch.setitem(sys.modules, package, None)
    assert importlib.util.find_spec(package) is None
    sentence = f"engine {engine} needs the package {package}, which is not installed: pip install {package}"
    with pytest.raises(EngineMissing) as caught:
        solve(knapsack(), engine=engine)
    assert str(caught.value) == sentence


def test_unknown_engines_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidInput, match=r"engine 'gurobbi' is unknown: did you mean gurobi\?"):
        solve(knapsack(), engine="gurobbi")


def test_auto_takes_highs_for_sizes_and_cpsat_for_logic(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ModelBuilder("cover")
    x = builder.binaries(6, cost=1)
    builder.rows([0, 0, 1, 1, 2, 2], x, lower=[1, 1, 1])
    logic = builder.build()
    assert choose(knapsack()) == "highs"
    assert choose(logic) == "cpsat"
    assert solve(logic).objective == 3
    monkeypatch.setitem(sys.modules, "ortools", None)
    assert choose(logic) == "highs"
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(EngineMissing, match="no open engine"):
        choose(logic)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert choose(knapsack()) == "cpsat"


def test_models_without_columns_and_plain_contradictions_need_no_engine() -> None:
    builder = ModelBuilder()
    builder.add_offset(5)
    builder.row([], [], -1, 1)
    answer = solve(builder.build())
    assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, 5, 5)
    builder.row([], [], lower=1, name="impossible")
    answer = solve(builder.build())
    assert answer.status is Status.INFEASIBLE
    assert answer.reason == "row impossible has no value between 1.0 and inf"


def test_highs_and_ortools_serve_one_program_in_turn() -> None:
    """Their libraries clash in one process; HiGHS lives in another."""
    for engine in ("cpsat", "highs", "gurobi", "highs", "cpsat"):
        assert solve(knapsack(), engine=engine).objective == -355
    assert "ortools" in sys.modules
    assert "highspy" not in sys.modules
