"""Random programs in sessions within random budgets: no number changes, nothing races, nothing crashes.

A failure prints the seed, what went wrong, and the smallest program found that goes wrong too; to see it again,
`judge(Program(…), Variant(…), torch.device("sim", 0))`.
"""

from dataclasses import replace

import pytest
import torch

from runtime.swap.portfolio import GAPS
from tests.runtime.swap.fuzz.program import draw_program
from tests.runtime.swap.fuzz.sessions import judge
from tests.runtime.swap.fuzz.shrinking import require_no_fault
from tests.runtime.swap.fuzz.variants import Variant, draw_variant

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # checkpoints in validation
ANY_GAP = replace(GAPS, tried="always")
IN_CI, IN_SOAK, A_TEST = 24, 600, 20


@pytest.mark.parametrize("seed", range(IN_CI))
def test_a_session_changes_no_bit(device: torch.device, seed: int) -> None:
    require_no_fault(seed, draw_program(seed), draw_variant(seed), device)


@pytest.mark.parametrize("seed", range(400, 404))
def test_nor_do_policies_of_gaps(device: torch.device, seed: int) -> None:
    """Whatever waits between any two uses leaves, perhaps more than once in an iteration."""
    verdict = judge(draw_program(seed), replace(draw_variant(seed), solver=(ANY_GAP, ANY_GAP)), device)
    assert verdict.fault is None


@pytest.mark.parametrize("seed", range(200, 204))
def test_at_the_edge_tensors_do_leave(device: torch.device, seed: int) -> None:
    verdict = judge(draw_program(seed), Variant(share=0.0), device)
    assert verdict.fault is None
    assert verdict.counts.passive > 0 and verdict.counts.swapped_in > 0


@pytest.mark.parametrize("seed", range(300, 304))
def test_below_what_a_program_needs_it_ends_in_a_sentence_and_goes_on(device: torch.device, seed: int) -> None:
    verdict = judge(draw_program(seed), Variant(share=-0.7), device)
    assert verdict.fault is None
    assert verdict.out_of_memory


@pytest.mark.soak
@pytest.mark.parametrize("first", [*range(IN_CI, 100, A_TEST), *range(1000, 1000 + IN_SOAK, A_TEST)])
def test_many_sessions_change_no_bit(device: torch.device, first: int) -> None:
    for seed in range(first, first + A_TEST):
        require_no_fault(seed, draw_program(seed), draw_variant(seed), device)
