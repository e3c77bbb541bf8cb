"""Ranks as processes are ranks as threads: the same bytes, the same nanoseconds, and the same sentences."""

import os
import time
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from runtime.ranks import join, leave, run_ranks
from solvers.ir.errors import InvalidInput
from solvers.ir.report import Report
from tests.forked import run_world
from tests.runtime.ranks.budgets import job, plain, ran, train_within
from tests.runtime.ranks.cluster import CLUSTER
from tests.runtime.ranks.operations import CASES
from tests.soaking import in_soak

BUDGETS = [4_400_000, 5_000_000]
"""Of two ranks that take 7,252,992 bytes each without."""
pytestmark = pytest.mark.usefixtures("plain_sim")
Told = tuple[list[torch.Tensor], list[tuple[str, int, int]]]


def every_operation(rank: int) -> list[torch.Tensor]:
    """All of them, one after the other, on the rank's device."""
    device, found = torch.device("sim", rank), list[torch.Tensor]()
    for dtype in (torch.float32, torch.bfloat16):
        generator = torch.Generator().manual_seed(1)
        drawn = [torch.randn(12, 6, generator=generator, dtype=torch.float64) for _ in range(dist.get_world_size())]
        for case in CASES.values():
            found += [one.cpu() for one in case.do(rank, device, [part.to(dtype) for part in drawn])]
    return found


def by_shapes(rank: int) -> list[list[int]]:
    """Integers that came from the host travel; numbers that a kernel made do not; DDP agrees on its buckets by them."""
    device, ranks = torch.device("sim", rank), dist.get_world_size()
    mine, everyone = torch.tensor([10 + rank, 20 + rank]).to(device), torch.zeros(2 * ranks, dtype=torch.int64)
    gathered = everyone.to(device)
    dist.all_gather_into_tensor(gathered, mine)
    root = (torch.tensor([7]) if rank == 0 else torch.tensor([0])).to(device)
    dist.broadcast(root, 0)
    message = torch.tensor([30 + rank]).to(device)
    if rank == 1:
        dist.send(message, 0)
    elif rank == 0:
        dist.recv(message, 1)
    made = mine * 2 if rank == 0 else mine
    unknown = everyone.to(device)
    dist.all_gather_into_tensor(unknown, made)
    on_host = torch.tensor([rank])
    dist.all_reduce(on_host)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).to(device))
    for _ in range(2):
        model(torch.ones(16, 64, device=device)).sum().backward()
    return [one.tolist() for one in (gathered, root, message, unknown, on_host)]


def relay(rank: int, ranks: int) -> list[int]:
    """A number goes from the first rank to the last, grows on its way, and comes back, as a pipeline's stages agree."""
    device = torch.device("sim", rank)
    number = torch.ones(1, dtype=torch.int32, device=device)
    if rank:
        dist.recv(number, rank - 1)
        number = number + 10**rank
    if rank < ranks - 1:
        dist.send(number, rank + 1)
    there = number.clone()
    if rank < ranks - 1:
        dist.recv(number, rank + 1)
    if rank:
        dist.send(number, rank - 1)
    pair = dist.new_group([1, 2])
    if rank == 1:
        dist.recv(number, 2, group=pair)
    if rank == 2:
        dist.send(there * 2, 1, group=pair)
    return [int(there.item()), int(number.item())]


def told(report: Report) -> list[tuple[str, int, int]]:
    """What a rank's lanes did, in nanoseconds."""
    return [(one.label, round(one.start_us * 1e3), round(one.end_us * 1e3)) for one in report.spans]


def main(what: str, out: str) -> None:
    """What each process runs."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        join(hardware=CLUSTER, timeout_s=2.0 if what == "late" else 60.0, shapes_only=what == "shapes")
        rank = dist.get_rank()
        if what == "mismatch":
            dist.all_reduce(torch.ones(2 + rank, device=f"sim:{rank}"))
        elif what in {"missing", "late"} and rank == 0:
            dist.recv(torch.ones(2, device="sim:0"), 1)
        elif what == "late":
            time.sleep(4)
        elif what == "sessions":
            budget = BUDGETS[rank]
            found = train_within(job("ddp", 2), rank, budget)
            torch.save((found.trained.losses, found.trained.parameters, found.peak_bytes), f"{out}/{rank}.pt")
        elif what == "every operation":
            values = every_operation(rank)
            torch.save((values, told(leave())), f"{out}/{rank}.pt")
        elif what == "relay":
            numbers_there_and_back = relay(rank, dist.get_world_size())
            torch.save((numbers_there_and_back, told(leave())), f"{out}/{rank}.pt")
        elif what == "shapes":
            numbers = by_shapes(rank)
            torch.save((numbers, told(leave())), f"{out}/{rank}.pt")
    except Exception as error:
        Path(f"{out}/{os.environ['RANK']}.txt").write_text(f"{type(error).__name__}: {error}")
    os._exit(0)  # Nobody waits for the other's shutdown.


def start(what: str, out: Path, ranks: int = 2) -> None:
    """Runs `main` in so many processes with the variables of torchrun, to their ends."""
    run_world(main, ranks, out, what, str(out))


def test_threads_and_processes_agree_bit_for_bit_and_nanosecond_for_nanosecond(tmp_path: Path) -> None:
    start("every operation", tmp_path)

    def program(rank: int) -> list[torch.Tensor]:
        dist.init_process_group("sim")
        return every_operation(rank)

    found = run_ranks(program, 2, hardware=CLUSTER)
    for rank in range(2):
        failed = tmp_path / f"{rank}.txt"
        assert not failed.exists(), failed.read_text()
        values, spans = torch.load(tmp_path / f"{rank}.pt")
        assert len(values) == len(found.values[rank]) > 50
        assert all(one.dtype == other.dtype for one, other in zip(values, found.values[rank], strict=True))
        assert all(map(torch.equal, values, found.values[rank]))
        assert spans == told(found.reports[rank])


def test_messages_come_from_every_rank(tmp_path: Path) -> None:
    """Also from those behind the second, whose place in the group is no place in a message of two."""
    start("relay", tmp_path, 3)

    def program(rank: int) -> list[int]:
        dist.init_process_group("sim")
        return relay(rank, 3)

    found = run_ranks(program, 3, hardware=CLUSTER)
    assert found.values == [[1, 111], [11, 222], [111, 111]]
    for rank in range(3):
        failed = tmp_path / f"{rank}.txt"
        assert not failed.exists(), failed.read_text()
        assert torch.load(tmp_path / f"{rank}.pt") == (found.values[rank], told(found.reports[rank]))


def test_by_shapes_processes_know_the_integers_and_nanoseconds_of_threads(tmp_path: Path) -> None:
    start("shapes", tmp_path)

    def program(rank: int) -> list[list[int]]:
        dist.init_process_group("sim")
        return by_shapes(rank)

    found = run_ranks(program, 2, hardware=CLUSTER, shapes_only=True)
    assert found.values == [[[10, 20, 11, 21], [7], [31], [1] * 4, [1]]] * 2
    for rank in range(2):
        failed = tmp_path / f"{rank}.txt"
        assert not failed.exists(), failed.read_text()
        numbers, spans = torch.load(tmp_path / f"{rank}.pt")
        assert (numbers, spans) == (found.values[rank], told(found.reports[rank]))


@pytest.mark.parametrize(
    ("what", "sentences"),
    [
        (
            "mismatch",
            {
                0: "Mismatch: in all_reduce 1 of ranks 0, 1 rank 0 calls all_reduce of 8 bytes, float32, SUM, but rank "
                "1 calls all_reduce of 12 bytes, float32, SUM",
                1: "Mismatch: in all_reduce 1 of ranks 0, 1 rank 1 calls all_reduce of 12 bytes, float32, SUM, but "
                "rank 0 calls all_reduce of 8 bytes, float32, SUM",
            },
        ),
        in_soak(
            "late", {0: "Deadlock: rank 0 waited in message 1 from rank 1 to rank 0 for 2 s, and the other ranks did"}
        ),
        in_soak(
            "missing",
            {0: "Deadlock: rank 0 waited in message 1 from rank 1 to rank 0, but the process of a rank that it"},
        ),
    ],
)
def test_what_goes_wrong_is_told(what: str, sentences: dict[int, str], tmp_path: Path) -> None:
    start(what, tmp_path)
    for rank, sentence in sentences.items():
        assert (tmp_path / f"{rank}.txt").read_text().startswith(sentence)


def test_join_wants_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInput, match=r"join found no RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the env.*run"):
        join()
    with pytest.raises(InvalidInput, match="leave was called without join: call join first"):
        leave()


def test_sessions_of_processes_train_as_those_of_threads_do(tmp_path: Path) -> None:
    start("sessions", tmp_path)
    threads = ran("ddp", BUDGETS).values
    for rank, (free, within) in enumerate(zip(plain("ddp", 2).values, threads, strict=True)):
        losses, parameters, peak_bytes = torch.load(tmp_path / f"{rank}.pt")
        assert losses == within.trained.losses == free.trained.losses
        assert all(torch.equal(parameters[name], one) for name, one in within.trained.parameters.items())
        assert peak_bytes <= BUDGETS[rank] < free.peak_bytes
