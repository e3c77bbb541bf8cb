"""What an engine claims is believed only as far as it can be checked."""

import numpy as np
import pytest

from solvers.engines import LinearModel, ModelBuilder
from solvers.engines.claim import Claim, Verdict, judge
from solvers.ir.errors import InvalidProblem
from solvers.ir.solution import Status


def switch_model(exact: bool = True) -> LinearModel:
    """Pay 1 to open a switch through which up to 1e9 bytes pass; 500 must pass."""
    builder = ModelBuilder("switch")
    opened = builder.binary(cost=1, name="open")
    passed = builder.column(0, 1e9, integer=exact, name="bytes")
    builder.row([passed, opened], [1, -1e9], upper=0, name="closed")
    builder.row([passed], 1, lower=500, name="demand")
    return builder.build()


def proven(x: list[float], bound: float) -> Claim:
    return Claim(engine="E", verdict=Verdict.PROVEN, x=np.array(x), bound=bound)


def test_a_true_claim_is_optimal() -> None:
    answer = judge(switch_model(), proven([1, 500], 0.9999999))
    assert (answer.status, answer.objective, answer.bound, answer.reason) == (Status.OPTIMAL, 1, 1, None)
    assert answer.x is not None
    with pytest.raises(ValueError, match="read-only"):
        answer.x[0] = 0


def test_a_binary_of_half_a_millionth_is_not_a_closed_switch() -> None:
    """The big-M trap: 500 bytes through a switch open by 5e-7, 'optimal' at cost 0 within every tolerance."""
    answer = judge(switch_model(), proven([5e-7, 500], 0.0))
    assert answer.status is Status.UNKNOWN
    assert answer.x is None
    assert answer.bound == 0
    assert answer.reason is not None
    assert "closed" in answer.reason


def test_continuous_columns_are_solved_again_when_rounding_breaks_a_row() -> None:
    asked = []

    def polish(x: np.ndarray) -> Claim:
        asked.append(x.tolist())
        return proven([1, 500], 1)

    answer = judge(switch_model(exact=False), proven([1 - 1e-9, 499.0], 1.0), polish=polish)
    assert asked == [[1.0, 499.0]]
    assert (answer.status, answer.objective) == (Status.OPTIMAL, 1)


def test_nearly_integers_and_tiny_excesses_are_cleaned() -> None:
    answer = judge(switch_model(), proven([0.9999999, 500.0000001], 1))
    assert answer.x is not None
    assert answer.x.tolist() == [1, 500]


def test_a_bound_above_a_solution_is_not_repeated() -> None:
    answer = judge(switch_model(), proven([1, 500], 7.0))
    assert (answer.status, answer.bound) == (Status.FEASIBLE, None)
    assert answer.reason is not None
    assert "contradicts" in answer.reason


def test_proven_within_a_gap_is_feasible() -> None:
    answer = judge(switch_model(), proven([1, 500], -3.0))
    assert (answer.status, answer.bound) == (Status.FEASIBLE, -3)
    assert answer.reason is not None
    assert "gap" in answer.reason


def test_an_integral_bound_can_prove_what_the_engine_did_not() -> None:
    claim = Claim(engine="E", verdict=Verdict.STOPPED, x=np.array([1.0, 500.0]), bound=0.3, why="E: time")
    answer = judge(switch_model(), claim)
    assert (answer.status, answer.bound, answer.reason) == (Status.OPTIMAL, 1, None)


def test_a_start_stands_in_for_a_missing_or_worse_solution() -> None:
    stopped = Claim(engine="E", verdict=Verdict.STOPPED, bound=0.0, why="E: the time limit was reached")
    answer = judge(switch_model(), stopped, start=np.array([1.0, 700.0]))
    assert (answer.status, answer.objective, answer.reason) == (Status.FEASIBLE, 1, "E: the time limit was reached")
    assert judge(switch_model(), stopped, start=np.array([0.0, 700.0])).status is Status.UNKNOWN
    assert judge(switch_model(), stopped, start=np.array([1.0, np.nan])).status is Status.UNKNOWN


def test_a_start_refutes_a_false_infeasible() -> None:
    claim = Claim(engine="E", verdict=Verdict.INFEASIBLE)
    assert judge(switch_model(), claim).status is Status.INFEASIBLE
    answer = judge(switch_model(), claim, start=np.array([1.0, 500.0]))
    assert (answer.status, answer.bound) == (Status.FEASIBLE, None)


def test_without_a_solution_the_bound_is_kept_and_the_reason_told() -> None:
    claim = Claim(engine="E", verdict=Verdict.STOPPED, bound=0.4, why="E: the time limit was reached")
    answer = judge(switch_model(), claim)
    assert (answer.status, answer.bound) == (Status.UNKNOWN, 1)
    assert answer.reason == "E: the time limit was reached; no solution was found"
    assert judge(switch_model(), Claim(engine="E", verdict=Verdict.STOPPED, bound=-np.inf)).bound is None


def test_unbounded_is_an_error_in_one_sentence() -> None:
    with pytest.raises(InvalidProblem, match=r"^switch: E found that the objective falls without limit: .*$"):
        judge(switch_model(), Claim(engine="E", verdict=Verdict.UNBOUNDED))
