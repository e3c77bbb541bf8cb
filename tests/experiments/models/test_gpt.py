"""The demo's model: repeatable, real, and the same with recomputation."""

import torch

from experiments.models import Gpt, GptShape

TINY = GptShape(layers=2, width=32, heads=2, context=32, batch=4, learning_rate=0.01)
CPU = torch.device("cpu")


def losses(shape: GptShape, steps: int, recompute: bool = False) -> list[float]:
    workload = shape.build(CPU, recompute=recompute)
    return [workload.step().item() for _ in range(steps)]


def test_building_again_trains_again_alike() -> None:
    assert losses(TINY, 4) == losses(TINY, 4)


def test_recomputation_changes_no_bit_even_with_dropout() -> None:
    assert TINY.dropout > 0
    assert losses(TINY, 4) == losses(TINY, 4, recompute=True)


def test_it_learns() -> None:
    found = losses(TINY, 40)
    assert 5 < found[0] < 6.5  # about ln 256
    assert found[-1] < found[0] - 1.5


def test_a_tied_model_has_one_matrix_for_both_ends() -> None:
    tied, free = (Gpt(GptShape(layers=1, tied=flag)) for flag in (True, False))
    assert tied.head.weight is tied.tokens.weight
    difference = sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in tied.parameters())
    assert difference == 256 * 128
