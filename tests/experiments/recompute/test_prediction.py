"""The prediction's times, by hand: a chain of three operators, of which the backward pass reads the last two."""

from experiments.recompute.prediction import Prediction, predict
from experiments.recompute.step_log import StepLog
from runtime.recompute.policy import BlockPolicy
from tests.runtime.recompute.stories import BEFORE, measured, policy

TIMES_US = (10.0, 20.0, 40.0)
"""Of norm, widen and act."""


def predicted(*policies: BlockPolicy) -> Prediction:
    """Blocks one after the other; each has one wait of 25 us in its backward pass."""
    count = len(policies)
    return predict(StepLog(500.0, (25.0,) * count, (TIMES_US,) * count, (), measured(count)), policies)


def test_what_is_stored_costs_nothing() -> None:
    found = predicted(policy(0, 1, 1))
    assert (found.step_us, found.exposed_us, found.hidden_us) == (500.0, 0.0, 0.0)


def test_what_is_asked_for_runs_with_all_that_it_reads() -> None:
    """Act is asked for first: norm, widen and act run; widen stays, for it is asked for next."""
    found = predicted(policy(0, 0, 0))
    assert (found.step_us, found.exposed_us) == (570.0, 70.0)
    assert found.peak_bytes == BEFORE + 500


def test_a_window_hides_what_runs_in_it_and_the_last_block_in_backward_order_has_none() -> None:
    """Two blocks store widen and run act (40 us) in a window of 25 us of the block behind them."""
    found = predicted(*[policy(0, 1, 0, backward=(2,))] * 2)
    assert found.hidden_us == 25.0  # block 0's, beside block 1's wait
    assert found.late_us == 40.0  # block 1's: nothing runs its backward pass before it
    assert found.exposed_us == 40.0 + 15.0  # and what the window was too short for
