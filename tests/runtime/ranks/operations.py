"""Every operation of torch.distributed with what its documentation says that it gives, worked out on the CPU.

One file: a table whose rows are all alike.
An operation takes its rank, a place for new tensors and what every rank has (`parts`, on the CPU); so does its formula.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh


@dataclass(frozen=True)
class Case:
    """`do` gives what the rank has afterwards, `formula` what it must have; `ROWS` rows a rank."""

    do: Callable[[int, torch.device, list[Tensor]], Sequence[Tensor]]
    formula: Callable[[int, list[Tensor]], Sequence[Tensor]]


ROWS = 12
"""A multiple of 2, 3 and 4 ranks."""
ROOT = 1


def fold(parts: Sequence[Tensor], how: Callable[[Tensor, Tensor], Tensor] = torch.add) -> Tensor:
    """The parts combined from the first on, in their own type."""
    total = parts[0].clone()
    for part in parts[1:]:
        total = how(total, part)
    return total


def mean(parts: Sequence[Tensor]) -> Tensor:
    """The average; integers are cut."""
    total = fold(parts)
    return total / len(parts) if total.is_floating_point() else total // len(parts)


def _given(rank: int, at: torch.device, parts: list[Tensor]) -> Tensor:
    return parts[rank].to(at, copy=True)


def _all_reduce(op: dist.ReduceOp.RedOpType) -> Callable[[int, torch.device, list[Tensor]], Sequence[Tensor]]:
    def do(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
        mine = _given(rank, at, parts)
        dist.all_reduce(mine, op)
        return [mine]

    return do


def _asynchronous(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    first, second = _given(rank, at, parts), _given(rank, at, parts)
    works = [dist.all_reduce(first, async_op=True), dist.broadcast(second, ROOT, async_op=True)]
    for work in reversed(works):
        assert work is not None
        work.wait()
    return [first, second]


def _gaps(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    """Every other column, and a transposed tensor: what stands between stays."""
    mine, turned = _given(rank, at, parts), _given(rank, at, parts)
    dist.all_reduce(mine[:, ::2])
    dist.broadcast(turned.t(), ROOT)
    return [mine, turned]


def _gaps_filled(rank: int, parts: list[Tensor]) -> Sequence[Tensor]:
    wanted = parts[rank].clone()
    wanted[:, ::2] = fold([part[:, ::2] for part in parts])
    return [wanted, parts[ROOT]]


def _reduce(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    mine = _given(rank, at, parts)
    dist.reduce(mine, ROOT)
    return [mine] if rank == ROOT else []


def _broadcast(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    mine = _given(rank, at, parts)
    dist.broadcast(mine, ROOT)
    return [mine]


def _all_gather(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    found = [torch.empty_like(part, device=at) for part in parts]
    dist.all_gather(found, _given(rank, at, parts))
    return found


def _all_gather_into_tensor(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    found = torch.empty_like(torch.cat(parts), device=at)
    dist.all_gather_into_tensor(found, _given(rank, at, parts))
    return [found]


def _gather(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    found = [torch.empty_like(part, device=at) for part in parts] if rank == ROOT else None
    dist.gather(_given(rank, at, parts), found, dst=ROOT)
    return found or []


def _scatter(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    found = torch.empty_like(parts[0], device=at)
    dist.scatter(found, [part.to(at) for part in parts] if rank == ROOT else None, src=ROOT)
    return [found]


def _reduce_scatter(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    rows = list(_given(rank, at, parts).chunk(len(parts)))
    found = torch.empty_like(rows[0])
    dist.reduce_scatter(found, rows)
    return [found]


def _reduce_scatter_tensor(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    mine = _given(rank, at, parts)
    found = torch.empty_like(mine.chunk(len(parts))[0])
    dist.reduce_scatter_tensor(found, mine, dist.ReduceOp.MAX)
    return [found]


def _all_to_all(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    rows = list(_given(rank, at, parts).chunk(len(parts)))
    found = [torch.empty_like(row) for row in rows]
    dist.all_to_all(found, rows)
    return found


def _all_to_all_single(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    found = torch.empty_like(parts[0], device=at)
    dist.all_to_all_single(found, _given(rank, at, parts))
    return [found]


def _shares(rank: int, ranks: int) -> list[int]:
    """Unequal on purpose, one of them 0: rank r gives rank s (r + s) mod `ranks` rows."""
    return [(rank + other) % ranks for other in range(ranks)]


def _all_to_all_sizes(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    sizes = _shares(rank, len(parts))
    mine = _given(rank, at, parts)[: sum(sizes)]
    found = torch.empty_like(mine)
    dist.all_to_all_single(found, mine, sizes, sizes)
    return [found]


def _columns(rank: int, parts: list[Tensor]) -> list[Tensor]:
    return [part.chunk(len(parts))[rank] for part in parts]


def _coalesced(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    one, two = _given(rank, at, parts), _given(rank, at, parts)[:3].clone()
    with distributed_c10d._coalescing_manager(device=at):
        dist.all_reduce(one)
        dist.all_reduce(two)
    whole = torch.empty_like(torch.cat(parts), device=at)
    with distributed_c10d._coalescing_manager(device=at, async_ops=True) as works:
        dist.all_gather_into_tensor(whole, _given(rank, at, parts))
    works.wait()
    part = torch.empty_like(one.chunk(len(parts))[0])
    with distributed_c10d._coalescing_manager(device=at):
        dist.reduce_scatter_tensor(part, _given(rank, at, parts))
    return [one, two, whole, part]


def _messages(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    """Around the ring: even ranks send first, the last rank receives first; then all at once."""
    after, before = (rank + 1) % len(parts), (rank - 1) % len(parts)
    found = [torch.empty_like(parts[0], device=at) for _ in range(3)]
    mine = _given(rank, at, parts)
    if rank % 2 == 0 and rank != len(parts) - 1:
        dist.send(mine, after)
        dist.recv(found[0], before)
    else:
        dist.recv(found[0], before)
        dist.send(mine, after)
    sent, received = dist.isend(mine, after), dist.irecv(found[1], before)
    assert sent is not None
    assert received is not None
    received.wait()
    sent.wait()
    both = [dist.P2POp(dist.isend, mine, before), dist.P2POp(dist.irecv, found[2], after)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return found


def _received(rank: int, parts: list[Tensor]) -> Sequence[Tensor]:
    before, after = parts[rank - 1], parts[(rank + 1) % len(parts)]
    return [before, before, after]


def _tags(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    """Two messages of one pair, told apart by tags, received in the other order."""
    found = [torch.empty_like(parts[0], device=at) for _ in range(2)]
    if rank == 0:
        works = [dist.isend(parts[tag].to(at), 1, tag=tag) for tag in (0, 1)]
    elif rank == 1:
        works = [dist.irecv(found[tag], 0, tag=tag) for tag in (1, 0)]
    else:
        return []
    for work in works:
        assert work is not None
        work.wait()
    return found if rank == 1 else []


def _objects(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    found: list[object] = [None] * len(parts)
    dist.all_gather_object(found, {"rank": rank, "part": parts[rank]})
    told: list[object] = [("from", rank)]
    dist.broadcast_object_list(told, ROOT)
    assert told == [("from", ROOT)]
    dist.barrier()
    return [one["part"] for one in found if isinstance(one, dict)]


def _functional(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    mine, group = _given(rank, at, parts), dist.group.WORLD
    sizes = _shares(rank, len(parts))
    assert group is not None
    return [
        functional.all_reduce(mine, "sum", group) + 0,
        functional.all_gather_tensor(mine, 0, group) + 0,
        functional.reduce_scatter_tensor(mine, "sum", 0, group) + 0,
        functional.broadcast(mine, ROOT, group) + 0,
        functional.all_to_all_single(mine[: sum(sizes)], sizes, sizes, group) + 0,
        *(one + 0 for one in functional.all_reduce_coalesced([mine, mine[:2]], "sum", group)),
    ]


def _functional_formula(rank: int, parts: list[Tensor]) -> Sequence[Tensor]:
    total = fold(parts)
    return [
        total,
        torch.cat(parts),
        total.chunk(len(parts))[rank],
        parts[ROOT],
        _by_sizes(rank, parts)[0],
        total,
        total[:2],
    ]


def _by_sizes(rank: int, parts: list[Tensor]) -> Sequence[Tensor]:
    shares = [torch.split(part, [*_shares(sender, len(parts)), 100])[:-1] for sender, part in enumerate(_long(parts))]
    return [torch.cat([share[rank] for share in shares])]


def _long(parts: list[Tensor]) -> list[Tensor]:
    """As many rows behind each part as `split` wants to leave over."""
    ranks = len(parts)
    return [
        torch.cat([part[: sum(_shares(rank, ranks))], part.new_zeros(100, part.shape[1])])
        for rank, part in enumerate(parts)
    ]


def _subgroups(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    """The first rank alone, the rest in the other order, and all of them."""
    rest = list(range(1, len(parts)))
    alone, others = dist.new_group([0]), dist.new_group(rest)
    mine = _given(rank, at, parts)
    dist.all_reduce(mine, group=alone if rank == 0 else others)
    whole = _given(rank, at, parts)
    dist.all_reduce(whole)
    found = [mine, whole]
    if rank:
        last = _given(rank, at, parts)
        dist.broadcast(last, rest[-1], group=others)
        found.append(last)
    return found


def _subgroups_formula(rank: int, parts: list[Tensor]) -> Sequence[Tensor]:
    if rank == 0:
        return [parts[0], fold(parts)]
    return [fold(parts[1:]), fold(parts), parts[-1]]


def _mesh(rank: int, at: torch.device, parts: list[Tensor]) -> Sequence[Tensor]:
    """Two rows and as many columns as there is room for; an odd rank out has a mesh of one row."""
    rows = 2 if len(parts) % 2 == 0 else 1
    mesh = init_device_mesh(at.type, (rows, len(parts) // rows), mesh_dim_names=("row", "column"))
    down, across = _given(rank, at, parts), _given(rank, at, parts)
    dist.all_reduce(down, group=mesh.get_group("row"))
    dist.all_reduce(across, group=mesh.get_group("column"))
    return [down, across]


def _mesh_formula(rank: int, parts: list[Tensor]) -> Sequence[Tensor]:
    columns = len(parts) // 2 if len(parts) % 2 == 0 else len(parts)
    first = rank - rank % columns
    return [fold(parts[rank % columns :: columns]), fold(parts[first : first + columns])]


CASES: dict[str, Case] = {
    "all_reduce": Case(_all_reduce(dist.ReduceOp.SUM), lambda rank, parts: [fold(parts)]),
    "all_reduce, average": Case(_all_reduce(dist.ReduceOp.AVG), lambda rank, parts: [mean(parts)]),
    "all_reduce, largest": Case(_all_reduce(dist.ReduceOp.MAX), lambda rank, parts: [fold(parts, torch.maximum)]),
    "all_reduce, least": Case(_all_reduce(dist.ReduceOp.MIN), lambda rank, parts: [fold(parts, torch.minimum)]),
    "all_reduce, product": Case(_all_reduce(dist.ReduceOp.PRODUCT), lambda rank, parts: [fold(parts, torch.mul)]),
    "asynchronous": Case(_asynchronous, lambda rank, parts: [fold(parts), parts[ROOT]]),
    "tensors with gaps": Case(_gaps, _gaps_filled),
    "reduce": Case(_reduce, lambda rank, parts: [fold(parts)] if rank == ROOT else []),
    "broadcast": Case(_broadcast, lambda rank, parts: [parts[ROOT]]),
    "all_gather": Case(_all_gather, lambda rank, parts: parts),
    "all_gather_into_tensor": Case(_all_gather_into_tensor, lambda rank, parts: [torch.cat(parts)]),
    "gather": Case(_gather, lambda rank, parts: parts if rank == ROOT else []),
    "scatter": Case(_scatter, lambda rank, parts: [parts[rank]]),
    "reduce_scatter": Case(_reduce_scatter, lambda rank, parts: [fold(_columns(rank, parts))]),
    "reduce_scatter_tensor": Case(
        _reduce_scatter_tensor, lambda rank, parts: [fold(_columns(rank, parts), torch.maximum)]
    ),
    "all_to_all": Case(_all_to_all, _columns),
    "all_to_all_single": Case(_all_to_all_single, lambda rank, parts: [torch.cat(_columns(rank, parts))]),
    "all_to_all_single, sizes": Case(_all_to_all_sizes, _by_sizes),
    "coalesced": Case(
        _coalesced,
        lambda rank, parts: [fold(parts), fold(parts)[:3], torch.cat(parts), fold(parts).chunk(len(parts))[rank]],
    ),
    "messages": Case(_messages, _received),
    "messages with tags": Case(_tags, lambda rank, parts: parts[:2] if rank == 1 else []),
    "objects": Case(_objects, lambda rank, parts: parts),
    "functional": Case(_functional, _functional_formula),
    "subgroups": Case(_subgroups, _subgroups_formula),
    "device mesh": Case(_mesh, _mesh_formula),
}
