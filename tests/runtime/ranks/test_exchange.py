"""What operations give their members, against the definitions in torch.distributed's documentation."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from runtime.ranks.exchange import Call, Kind, exchange, reduced, reduction_name
from solvers.ir.errors import InvalidInput

A, B, C = (torch.arange(6.0) + 10 * member for member in range(3))


Lists = list[list[Tensor]]


def given(kind: Kind, *inputs: list[Tensor], reduction: str | None = None, root: int | None = None) -> Lists:
    return exchange(Call(kind, reduction=reduction, root=root), inputs)


def same(found: list[list[Tensor]], wanted: list[list[Tensor]]) -> bool:
    pairs = list(zip(found, wanted, strict=True))
    return all(len(here) == len(there) and all(map(torch.equal, here, there)) for here, there in pairs)


def test_reductions_come_to_all_or_to_the_root() -> None:
    assert same(given("all_reduce", [A], [B], [C], reduction="SUM"), [[A + B + C]] * 3)
    assert same(given("all_reduce", [A, B], [B, A], reduction="MAX"), [[B, B]] * 2)
    assert same(given("reduce", [A], [B], reduction="AVG", root=1), [[], [(A + B) / 2]])


def test_a_sum_goes_from_rank_0_on_whatever_it_costs_in_bits() -> None:
    """(1e8 + 1) − 1e8 is 0 in float32 in this order only."""
    parts = [torch.tensor([value]) for value in (1e8, 1.0, -1e8)]
    assert reduced(parts, "SUM").item() == 0.0
    assert reduced([parts[0], parts[2], parts[1]], "SUM").item() == 1.0
    assert reduced([torch.tensor([7]), torch.tensor([2])], "AVG").item() == 4  # integers stay integers


def test_gathering_and_scattering() -> None:
    assert same(given("all_gather", [A], [B]), [[A, B]] * 2)
    assert same(given("gather", [A], [B], root=0), [[A, B], []])
    assert same(given("all_gather_single", [A, C], [B, B]), [[torch.cat([A, B]), torch.cat([C, B])]] * 2)
    assert same(given("broadcast", [], [B], root=1), [[B], []])
    assert same(given("scatter", [A, B], [], root=0), [[A], [B]])
    assert same(given("reduce_scatter", [A, B], [B, C], reduction="SUM"), [[A + B], [B + C]])
    assert same(given("reduce_scatter_single", [A], [B], reduction="SUM"), [[(A + B)[:3]], [(A + B)[3:]]])
    assert same(given("all_to_all", [A, B], [C, A]), [[A, C], [B, A]])
    assert same(given("message", [A], []), [[], [A]])
    assert same(given("barrier", [], []), [[], []])


def test_nothing_given_shares_memory_with_what_was_sent() -> None:
    for kind in ("all_reduce", "all_gather", "broadcast", "all_gather_single", "message"):
        sent = A.clone()
        found = exchange(Call(kind, reduction="SUM", root=0), [[sent], [] if kind in {"broadcast", "message"} else [B]])
        before = [[tensor.clone() for tensor in tensors] for tensors in found]
        sent.zero_()
        assert same(found, before)


def test_calls_tell_what_they_are() -> None:
    call = Call("all_reduce", (torch.float32,), (4096,), "SUM")
    assert str(call) == "all_reduce of 4,096 bytes, float32, SUM"
    assert (call.total_bytes(4), Call("all_gather", (torch.int8,), (10,)).total_bytes(4)) == (4096, 40)
    assert reduction_name(dist.ReduceOp.SUM) == reduction_name(dist.ReduceOp(dist.ReduceOp.SUM)) == "SUM"
    with pytest.raises(InvalidInput, match="reduction PREMUL_SUM is not known to the group 'sim'"):
        reduction_name(dist.ReduceOp.PREMUL_SUM)
