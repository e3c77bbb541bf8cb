"""Whether two results are the same, bit for bit: NaN is NaN where its bits are, and 0 is not −0."""

from collections.abc import Sequence

import torch
from torch import Tensor


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether kind, shape and every bit agree; sparse tensors as they are stored, in indices and values."""
    if one is None or other is None:
        return one is other
    if (one.dtype, one.shape, one.layout, one.device) != (other.dtype, other.shape, other.layout, other.device):
        return False
    if one.layout is not torch.strided:
        pairs = zip(_stored(one), _stored(other), strict=True)
        coalesced = one.layout is not torch.sparse_coo or one.is_coalesced() == other.is_coalesced()
        return coalesced and all(same_bits(*pair) for pair in pairs)
    return torch.equal(_bytes(one), _bytes(other))


def all_same_bits(ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> bool:
    """As `same_bits`, of each pair."""
    return len(ours) == len(theirs) and all(map(same_bits, ours, theirs))


def unlike_bits(one: Tensor, other: Tensor) -> list[int]:
    """Where two flat tensors of one shape and type differ."""
    return (_bytes(one) != _bytes(other)).any(dim=1).nonzero().flatten().tolist()


def _bytes(dense: Tensor) -> Tensor:
    """A row for each element, of its bytes; contiguous tensors may have any stride where there is but one element."""
    plain = dense.detach().resolve_conj().resolve_neg().contiguous()
    in_order = plain.as_strided((plain.numel(),), (1,))
    return in_order.view(torch.uint8).reshape(-1, plain.element_size())


def _stored(sparse: Tensor) -> tuple[Tensor, ...]:
    if sparse.layout is torch.sparse_coo:
        return sparse._indices(), sparse._values()
    if sparse.layout in (torch.sparse_csr, torch.sparse_bsr):
        return sparse.crow_indices(), sparse.col_indices(), sparse.values()
    return sparse.ccol_indices(), sparse.row_indices(), sparse.values()
