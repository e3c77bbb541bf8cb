"""Random programs with work on other streams and threads, and with optimizers inside the backward pass, in sessions.

Races are raised: every wait that a session leaves out, in exchange for the host's, would be one.
"""

import pytest
import torch

from tests.runtime.swap.fuzz.program import BESIDE, draw_beside
from tests.runtime.swap.fuzz.sessions import judge
from tests.runtime.swap.fuzz.shrinking import require_no_fault
from tests.runtime.swap.fuzz.training import Loop
from tests.runtime.swap.fuzz.variants import Variant, draw_variant

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # checkpoints in validation
IN_CI, IN_SOAK, A_TEST = 16, 600, 20
CPU = torch.device("cpu")


def test_everything_is_drawn() -> None:
    programs = [draw_beside(seed) for seed in range(IN_CI)]
    assert {program.beside for program in programs} == set(BESIDE)
    assert 4 < sum(program.inside for program in programs) < IN_CI - 4


@pytest.mark.parametrize("seed", range(8))
def test_the_work_beside_is_what_a_cpu_does(device: torch.device, seed: int) -> None:
    program = draw_beside(seed)
    plain = Loop(program, device).run()
    if not {"recurrent", "lstm"} & set(program.parts):
        assert Loop(program, CPU).run().difference(plain) is None


@pytest.mark.parametrize("seed", range(IN_CI))
def test_a_session_changes_no_bit(device: torch.device, seed: int) -> None:
    require_no_fault(seed, draw_beside(seed), draw_variant(seed), device)


@pytest.mark.parametrize("seed", [3145, 8063])
def test_what_the_forward_pass_made_unseen_is_no_gradient(device: torch.device, seed: int) -> None:
    require_no_fault(
        seed, draw_beside(seed), draw_variant(seed), device
    )  # memory is short for the first time in a backward pass through a backward pass


@pytest.mark.parametrize("seed", range(500, 504))
def test_at_the_edge_tensors_do_leave(device: torch.device, seed: int) -> None:
    verdict = judge(draw_beside(seed), Variant(share=0.0), device)
    assert verdict.fault is None
    if draw_beside(seed).beside != "thread":  # what another thread uses stays: that may be all there is
        assert verdict.counts.passive > 0 and verdict.counts.swapped_in > 0


@pytest.mark.soak
@pytest.mark.parametrize("first", [IN_CI, IN_CI + A_TEST, *range(3000, 3000 + IN_SOAK, A_TEST)])
def test_many_sessions_change_no_bit(device: torch.device, first: int) -> None:
    for seed in range(first, first + A_TEST):
        require_no_fault(seed, draw_beside(seed), draw_variant(seed), device)
