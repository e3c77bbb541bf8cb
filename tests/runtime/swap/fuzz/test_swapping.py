"""Programs whose tensors are sent away by hand, and programs under a schedule, lose no bit."""

import pytest
import torch

from runtime.device import use_sim
from tests.runtime.swap.fuzz.program import draw_program
from tests.runtime.swap.fuzz.training import Loop
from tests.runtime.swap.fuzz.treatments import ByHand, Planned
from tests.soaking import some

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # checkpoints in validation


@pytest.mark.parametrize("seed", some(range(100, 116)))
def test_what_leaves_by_hand_comes_back_whole(device: torch.device, seed: int) -> None:
    program = draw_program(seed)
    plain = Loop(program, device).run()
    treatment = ByHand(seed)
    assert Loop(program, device, treatment).run().difference(plain) is None
    assert treatment.left > 10


@pytest.mark.parametrize("seed", some(range(200, 216)))
def test_a_schedule_survives_whatever_changes(device: torch.device, seed: int) -> None:
    program = draw_program(seed)
    plain = Loop(program, device).run()
    treatment = Planned(program, device, fraction=0.8)
    use_sim(races="raise")
    assert Loop(program, device, treatment).run().difference(plain) is None
