"""Arithmetic counts agree with PyTorch's own counter."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from runtime.profile.recording import detailed_recording


def recorded_flops(work: Callable[[], object]) -> int:
    with detailed_recording(torch.device("cpu"), ()) as recorder:
        work()
    return sum(record.flops for record in recorder.operators())


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


WORKS: dict[str, Callable[[], object]] = {
    "mm": lambda: torch.mm(leaf(3, 4), leaf(4, 5)),
    "addmm": lambda: torch.addmm(leaf(5), leaf(3, 4), leaf(4, 5)),
    "bmm": lambda: torch.bmm(leaf(2, 3, 4), leaf(2, 4, 5)),
    "baddbmm": lambda: torch.baddbmm(leaf(2, 3, 5), leaf(2, 3, 4), leaf(2, 4, 5)),
    "linear": lambda: torch.autograd.backward(F.linear(leaf(2, 3, 4), leaf(5, 4), leaf(5)).sum()),
    "matmul": lambda: torch.autograd.backward(torch.matmul(leaf(2, 3, 4), leaf(4, 5)).sum()),
    "conv": lambda: torch.autograd.backward(F.conv2d(leaf(2, 4, 9, 9), leaf(6, 4, 3, 3), stride=2, padding=1).sum()),
    "dilated": lambda: F.conv1d(leaf(2, 4, 20), leaf(6, 4, 3), dilation=3),
    "transposed": lambda: F.conv_transpose2d(leaf(2, 4, 5, 5), leaf(4, 6, 3, 3), stride=2),
}


@pytest.mark.parametrize("name", WORKS)
def test_counts_equal_torch_flop_counter(name: str) -> None:
    with FlopCounterMode(display=False) as counter:
        WORKS[name]()
    assert recorded_flops(WORKS[name]) == counter.get_total_flops() > 0


def test_attention_counts_two_products_forward_and_five_backward() -> None:
    # 2 × 3 heads, 4 queries, 4 keys, width 8: one product is 2·(2·3·4·4·8) = 1536 operations.
    query, key, value = (leaf(2, 3, 4, 8) for _ in range(3))
    assert recorded_flops(lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True)) == 2 * 1536
    out = F.scaled_dot_product_attention(query, key, value)
    assert recorded_flops(lambda: torch.autograd.backward(out.sum())) == 5 * 1536


def test_a_grouped_convolution_costs_its_share_forward_and_backward() -> None:
    # 2 images, 5 × 5 positions, 6·2·3·3 weights: 10,800 operations, and as many for each of the two gradients.
    image, kernel = leaf(2, 4, 9, 9), leaf(6, 2, 3, 3)
    out = F.conv2d(image, kernel, stride=2, padding=1, groups=2)
    assert recorded_flops(lambda: F.conv2d(image, kernel, stride=2, padding=1, groups=2)) == 10_800
    assert recorded_flops(lambda: torch.autograd.backward(out.sum())) == 2 * 10_800
