"""What calibration multiplies: random, the same each time, and at no one's expense."""

import torch

from runtime.profile.samples import DRAWN, sample

CPU = torch.device("cpu")


def test_samples_are_random_and_repeatable() -> None:
    one = sample((128, 64), CPU)
    assert one.shape == (128, 64)
    assert len(set(one.flatten().tolist())) > 8000  # of 8,192: hardly any number twice
    assert abs(one.mean()) < 0.05 and abs(one.std() - 1) < 0.05
    assert torch.equal(one, sample((128, 64), CPU))


def test_large_samples_repeat_what_was_drawn() -> None:
    large = sample((3, DRAWN), CPU)
    assert torch.equal(large[0], large[2]) and len(set(large[0].tolist())) > 1000
    odd = sample((DRAWN + 5,), CPU)
    assert odd.shape == (DRAWN + 5,) and torch.equal(odd[DRAWN:], odd[:5])


def test_types_and_the_users_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert sample((4,), CPU, torch.bfloat16).dtype == torch.bfloat16
    assert torch.equal(torch.get_rng_state(), before)
