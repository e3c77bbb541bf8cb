"""The reconstructed closed forms, and how far they are from the exact recurrence and the event simulation."""

from fractions import Fraction

import pytest

from solvers.check.replan.judge import judge_replan
from solvers.ir import CurrentPipeline, CurrentState, ReplanPlan
from solvers.replan.estimate.accuracy import rerouting_error, symmetric_error
from solvers.replan.estimate.memory import stage_bytes
from solvers.replan.estimate.paper import f3_us, f6_us, f7_us, f8_bytes
from solvers.replan.estimate.sync import sync_us
from tests.solvers.replan.estimate.problems import changed


def test_the_formulas_by_hand() -> None:
    """A stage of two layers takes 6; four stages, eight microbatches, D = 3."""
    layers = (2,) * 4
    assert f3_us(changed(), layers, 8) == (8 + 3) * 6
    assert f6_us(changed(), layers, 8, 3) == (12 + 3) * 6
    assert f7_us(changed(), layers, 8, (0, 2, 1, 0), 3) == (24 + 3) * 6
    assert f7_us(changed(), layers, 7, (0, 1, 1, 0), 3) == (Fraction(21, 2) + 3) * 6
    assert f3_us(changed(last_extra_us=(1, 2)), layers, 8) == (8 + 3) * 9


def test_one_failure_is_f6_and_none_is_f3() -> None:
    for degree in (2, 5):
        assert f7_us(changed(), (3, 3), 6, (0, 1), degree) == f6_us(changed(), (3, 3), 6, degree)
        assert f7_us(changed(), (3, 3), 6, (0, 0), degree) == f3_us(changed(), (3, 3), 6)


def test_f3_is_exact_for_equal_stages_without_messages_and_only_then() -> None:
    for depth in range(1, 7):
        for microbatches in range(1, 14):
            assert symmetric_error(changed(), (2,) * depth, microbatches).error == 0
    assert symmetric_error(changed(p2p_us=1), (2,) * 4, 8).error < 0
    assert symmetric_error(changed(), (3, 2, 2, 2), 8).error > 0


def test_f8_leaves_out_the_ends_of_the_model() -> None:
    problem = changed(layer_static_bytes=9, layer_activation_bytes=2, first_static_bytes=5, last_static_bytes=6)
    assert f8_bytes(problem, (2, 2), 4) == (26, 22)
    assert stage_bytes(problem, (2, 2), 4) == (31, 28)


def test_rerouting_costs_up_to_nine_percent_more_than_f6_says() -> None:
    """The configurations of the README (Rerouting): F6 forgets whole microbatches and the way through the survivors."""
    errors = []
    for depth, degree, microbatches in ((4, 4, 8), (4, 8, 8), (4, 2, 8), (8, 4, 16), (4, 4, 16), (2, 4, 8)):
        for stage in range(depth):
            failed = [int(other == stage) for other in range(depth)]
            errors.append(rerouting_error(changed(), (1,) * depth, microbatches, failed, degree).error)
    assert -0.09 < min(errors) < -0.08 and max(errors) == 0
    assert rerouting_error(changed(), (1,) * 4, 8, (0, 0, 0, 0), 4).error == 0


def test_two_failures_in_a_stage_and_in_two_stages() -> None:
    same, two = (rerouting_error(changed(), (1,) * 4, 8, failed, 4) for failed in ((0, 2, 0, 0), (0, 1, 1, 0)))
    assert same.formula_us == (16 + 3) * 3 and two.formula_us == (Fraction(32, 3) + 3) * 3
    assert -0.05 < same.error <= 0 and -0.2 < two.error < 0


@pytest.mark.parametrize("failed", [(3,), (0, 3), (0, 2, 5)])
def test_the_judge_has_the_same_f7(failed: tuple[int, ...]) -> None:
    """Three pipelines of two stages; nodes 0 and 1 are the first one's."""
    pipelines = tuple(CurrentPipeline(layers=(2, 3), nodes=(2 * d, 2 * d + 1), microbatches=7) for d in range(3))
    problem = changed(
        layers=5,
        nodes=6 - len(failed),
        microbatches=21,
        sync_us=11,
        layer_sync_us=2,
        first_extra_us=(2, 2),
        current=CurrentState(pipelines=pipelines, failed=failed),
        restart_us=5,
        bytes_per_s=1,
        expected_interval_us=1000,
    )
    lost = [sum(node % 2 == stage for node in failed) for stage in range(2)]
    expected = f7_us(problem, (2, 3), 7, lost, 3) + sync_us(problem, [(2, 3)] * 3)
    verdict = judge_replan(problem, ReplanPlan(policy="reroute", pipelines=(), transfers=None))
    assert verdict.violations == () and verdict.objective_us == -(-expected.numerator // expected.denominator)
