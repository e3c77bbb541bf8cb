"""Sums in fixed point: no order, no grouping changes a bit, and they are nearer to the truth than sums of floats."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from runtime.elastic.faults import JobFault
from runtime.elastic.layer import seeded
from runtime.elastic.sums import CanonicalSum, PlainSum, from_fixed, to_fixed

NUMBERS = st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=12)


@given(NUMBERS, st.randoms())
@settings(deadline=None, max_examples=60)
def test_every_grouping_has_the_same_bits(numbers: list[float], random: object) -> None:
    fixed = [to_fixed(torch.tensor([one]), len(numbers), "it") for one in numbers]
    total = torch.stack(fixed).sum(0)
    order = list(range(len(fixed)))
    random.shuffle(order)  # type: ignore[attr-defined]
    cut = len(order) // 2
    left, right = (sum((fixed[one] for one in part), torch.zeros(1).long()) for part in (order[:cut], order[cut:]))
    assert torch.equal(left + right, total)
    exact = sum(map(float, torch.tensor(numbers).double())) / len(numbers)
    assert float(from_fixed(total, len(numbers))) == pytest.approx(exact, abs=2.0**-40, rel=1e-12)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 2.0**20])
def test_what_cannot_be_held_is_told(number: float) -> None:
    assert to_fixed(torch.tensor([2.0**18]), 8, "it") == 2**58
    with pytest.raises(JobFault, match=r"it holds .*, but sums in fixed point hold less than 524288: train with can"):
        to_fixed(torch.tensor([number]), 8, "it")


@pytest.mark.parametrize("kind", ["canonical", "plain"])
def test_the_mean_of_microbatches_is_left_for_the_optimizer(kind: str) -> None:
    weights = [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(3))]
    total = CanonicalSum(weights, 2, "it") if kind == "canonical" else PlainSum(weights, 2)
    for factor in (1.0, 3.0):
        weights[0].grad = torch.full((2, 2), factor)  # the second one has no gradient
        total.add()
        assert weights[0].grad is None
    total.finish()
    first, second = weights[0].grad, weights[1].grad
    assert first is not None and second is not None
    assert first.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert second.tolist() == [0.0, 0.0, 0.0]
    total.clear()
    assert not total.flat().any()


def test_random_numbers_depend_on_their_key_only() -> None:
    drawn = []
    for key in ((1, 2, 3), (1, 3, 2), (1, 2, 3)):
        torch.rand(7)
        seeded(5, *key)
        drawn.append(torch.rand(4).tolist())
    assert drawn[0] == drawn[2] != drawn[1]
