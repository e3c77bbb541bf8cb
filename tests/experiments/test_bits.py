"""Two results are the same where every bit is."""

import pytest
import torch

from experiments.bits import all_same_bits, same_bits, unlike_bits

NAN = float("nan")


def sparse(values: list[float], *, coalesced: bool = False) -> torch.Tensor:
    made = torch.sparse_coo_tensor(torch.tensor([[2, 0]]), torch.tensor(values), (4,))
    return made.coalesce() if coalesced else made


def test_a_number_that_is_none_is_the_same_as_itself() -> None:
    """torch.equal says it is not, so that a step which overflowed would never repeat."""
    assert same_bits(torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN]))
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert other.isnan().all() and not same_bits(other, torch.tensor([NAN]))


@pytest.mark.parametrize(
    "other",
    [torch.tensor([-0.0, 1.0]), torch.tensor([0.0]), torch.tensor([0.0, 1.0]).double(), torch.tensor([0.0, 2.0]), None],
)
def test_another_bit_type_or_shape_is_not_the_same(other: torch.Tensor | None) -> None:
    assert not same_bits(torch.tensor([0.0, 1.0]), other)


@pytest.mark.parametrize(
    "one",
    [
        torch.tensor(1.5),
        torch.empty(0),
        torch.tensor([True, False]),
        torch.ones(2, 3, dtype=torch.bfloat16).t(),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(4, 16, 1, 1).to(memory_format=torch.channels_last),
        torch.ones(64)[::16][:1],
        sparse([1.0, 2.0]),
        sparse([1.0, 2.0]).to_dense().reshape(2, 2).to_sparse_csr(),
    ],
)
def test_every_kind_of_tensor_is_the_same_as_its_copy(one: torch.Tensor) -> None:
    assert same_bits(one, one.clone())


def test_sparse_gradients_differ_by_values_and_by_how_they_are_stored() -> None:
    assert not same_bits(sparse([1.0, 2.0]), sparse([1.0, 3.0]))
    assert not same_bits(sparse([1.0, 2.0]), sparse([1.0, 2.0], coalesced=True))
    assert not same_bits(sparse([1.0, 2.0]), sparse([1.0, 2.0]).to_dense())


def test_lists_of_another_length_differ_and_differences_have_places() -> None:
    one = torch.tensor([1.0, NAN, 0.0])
    assert all_same_bits([one, None], [one.clone(), None])
    assert not all_same_bits([one, None], [one])
    assert not all_same_bits([one], [None])
    assert unlike_bits(one, torch.tensor([1.0, NAN, -0.0])) == [2]
