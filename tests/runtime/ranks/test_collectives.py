"""Each operation of torch.distributed gives every rank exactly what its definition says, in every type, on 2 to 4."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.runtime.ranks.cluster import run
from tests.runtime.ranks.operations import CASES, ROWS

pytestmark = pytest.mark.usefixtures("plain_sim")
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8)


def parts_of(ranks: int, dtype: torch.dtype) -> list[Tensor]:
    """What each rank has: numbers whose sums are rounded, or overflow, in the type at hand."""
    generator = torch.Generator().manual_seed(ranks)
    drawn = [torch.randn(ROWS, 6, generator=generator, dtype=torch.float64) * 50 for _ in range(ranks)]
    return [part.abs().to(dtype) if dtype == torch.uint8 else part.to(dtype) for part in drawn]


@pytest.mark.parametrize("name", CASES)
def test_on_devices(name: str) -> None:
    """Bit for bit, on as many ranks, and no race is found."""
    case = CASES[name]
    for ranks in (2, 3, 4):
        given = {dtype: parts_of(ranks, dtype) for dtype in DTYPES}

        def program(rank: int, device: torch.device, given: dict[torch.dtype, list[Tensor]] = given) -> list[Tensor]:
            return [one.cpu() for parts in given.values() for one in case.do(rank, device, parts)]

        found = run(program, ranks)
        for rank, tensors in enumerate(found.values):
            wanted = [one for parts in given.values() for one in case.formula(rank, parts)]
            assert len(tensors) == len(wanted)
            for one, other in zip(tensors, wanted, strict=True):
                assert one.dtype == other.dtype
                assert torch.equal(one, other), f"rank {rank} of {ranks}, {one.dtype}"
        assert found.races == []


@pytest.mark.parametrize("name", CASES)
def test_on_hosts(name: str) -> None:
    """The same between tensors of the CPU, which take no time; only a barrier is the devices' own."""
    case, parts = CASES[name], parts_of(3, torch.float32)
    found = run(lambda rank, device: list(case.do(rank, torch.device("cpu"), parts)), 3)
    for rank, tensors in enumerate(found.values):
        wanted = case.formula(rank, parts)
        assert len(tensors) == len(wanted)
        assert all(map(torch.equal, tensors, wanted))
    assert {record.op for record in found.trace} <= {"barrier"}


def test_a_group_of_one_keeps_what_it_has_in_no_time() -> None:
    part = parts_of(1, torch.float32)[0]

    def program(rank: int, device: torch.device) -> tuple[Tensor, int]:
        mine = part.to(device)
        torch.accelerator.synchronize()
        dist.all_reduce(mine)
        dist.barrier()
        return mine.cpu(), dist.get_world_size()

    found = run(program, 1)
    assert torch.equal(found.values[0][0], part)
    assert found.values[0][1] == 1
    assert [record.end_ns - record.start_ns for record in found.trace if record.kind == "comm"] == [0, 0]


def test_an_average_of_integers_and_bits() -> None:
    def program(rank: int, device: torch.device) -> list[list[int]]:
        found = []
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR, dist.ReduceOp.AVG):
            mine = torch.tensor([[12, 10, 7], [6, 2, 1]][rank], device=device)
            dist.all_reduce(mine, op)
            found.append(mine.tolist())
        return found

    assert run(program, 2).values == [[[4, 2, 1], [14, 10, 7], [10, 8, 6], [9, 6, 4]]] * 2


def test_a_future_is_done_with_the_operation() -> None:
    """What DDP's communication hooks chain on it sees the result, and runs on a stream that waits for it."""

    def program(rank: int, device: torch.device) -> list[float]:
        mine = torch.full((3,), float(rank + 1), device=device)
        work = dist.all_reduce(mine, async_op=True)
        assert work is not None
        half = work.get_future().then(lambda done: done.value()[0] / 2)
        found: list[float] = half.wait().tolist()
        return found

    found = run(program, 3)
    assert found.values == [[3.0] * 3] * 3
    assert found.races == []


def test_a_program_may_look_again_and_again() -> None:
    """Rank 1 comes late, by its own clock: rank 0's looks take time, and let it go on."""

    def program(rank: int, device: torch.device) -> tuple[float, int]:
        mine = torch.ones(1 << 10, device=device)
        if rank == 1:
            for _ in range(20):
                mine = mine @ torch.eye(1 << 10, device=device)
        work = dist.all_reduce(mine, async_op=True)
        assert work is not None
        looks = 1
        while not work.is_completed():
            looks += 1
        work.wait()
        return mine[0].item(), looks

    found = run(program, 2).values
    assert [total for total, _ in found] == [2.0, 2.0]
    assert min(looks for _, looks in found) > 1
    assert found == run(program, 2).values


def test_work_tells_whether_it_is_done() -> None:
    """By the host's clock, which comes there by waiting."""

    def program(rank: int, device: torch.device) -> list[bool]:
        mine = torch.ones(1 << 20, device=device)
        work = dist.all_reduce(mine, async_op=True)
        assert work is not None
        told = [work.is_completed()]
        work.wait()
        told += [work.is_completed()]
        torch.accelerator.synchronize()
        return [*told, work.is_completed(), work.is_success()]

    assert run(program, 2).values == [[False, False, True, True]] * 2
