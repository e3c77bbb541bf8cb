"""A run of ranks: what it returns, what each rank owns, and how every way of going wrong is told.

One file: each test is short, and all are about one function.
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from runtime.device.settling import settled
from runtime.ranks import Deadlock, Mismatch, RankRun, Stuck, run_ranks
from solvers.ir.errors import InvalidInput
from tests.runtime.ranks.cluster import CLUSTER, run

pytestmark = pytest.mark.usefixtures("plain_sim")
SAME_ORDER = ". Let all of them call the same operations in the same order"


def told(program: Callable[[int, torch.device], object], ranks: int, kind: type[Exception]) -> str:
    """The sentence of the error with which a run ends, which says whose it was."""
    with pytest.raises(kind) as caught:
        run(program, ranks)
    assert any("This was rank" in note for note in caught.value.__notes__)
    text = str(caught.value)
    # The frames of a failed program hold its tensors, which would count as in use by the next run.
    caught.value.__traceback__ = None
    return text


def test_values_and_reports_come_by_rank() -> None:
    def program(rank: int, device: torch.device) -> tuple[int, str, torch.device]:
        part = torch.ones(1000 * (rank + 1), device=device)
        dist.barrier()
        return rank * rank, f"rank {dist.get_rank()} of {dist.get_world_size()} of {dist.get_backend()}", part.device

    found = run(program, 3)
    assert found.values == [(rank**2, f"rank {rank} of 3 of sim", torch.device("sim", rank)) for rank in range(3)]
    assert [report.name for report in found.reports] == ["rank 0", "rank 1", "rank 2"]
    assert [report.peak_bytes >= 4000 * (rank + 1) for rank, report in enumerate(found.reports)] == [True] * 3
    assert all({"communication", "stream"} == {s.lane.split()[0] for s in report.spans} for report in found.reports)
    assert found.makespan_ns == max(round(report.makespan_us * 1000) for report in found.reports)
    assert {record.device for record in found.trace} == {0, 1, 2}


def draws(rank: int, device: torch.device) -> list[float]:
    """From every source of random numbers that a program of one process may use."""
    torch.manual_seed(10 + rank)
    random.seed(20 + rank)
    np.random.seed(30 + rank)
    found = []
    for _ in range(3):
        dropped = nn.functional.dropout(torch.ones(64, device=device)).sum().item()
        drawn = torch.rand(2, device=device).sum().item()
        found += [dropped, drawn, torch.rand(()).item(), random.random(), float(np.random.rand())]
        if dist.is_initialized():
            dist.barrier()
    return found


def draws_of(rank: int, alone: int) -> list[float]:
    """What a rank draws that is the only one."""
    return draws(rank, torch.device("sim", alone))


def test_each_rank_draws_what_a_process_of_its_own_would() -> None:
    """Although all take turns in one process, in the middle of their draws."""
    found = run(draws, 3)
    assert found.values[0] != found.values[1]
    for rank in range(3):
        alone = run_ranks(partial(draws_of, rank), 1, hardware=CLUSTER)
        mine = found.values[rank]
        assert mine[3::5] == alone.values[0][3::5]
        assert mine[4::5] == alone.values[0][4::5]
        if rank == 0:  # The lone rank is on device 0, which draws from the CPU's generator; others have their own.
            assert mine == alone.values[0]


def test_a_run_leaves_numbers_and_variables_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    torch.manual_seed(3)
    random.seed(4)
    np.random.seed(5)
    wanted = torch.rand(()).item(), random.random(), float(np.random.rand())
    torch.manual_seed(3)
    random.seed(4)
    np.random.seed(5)

    def program(rank: int, device: torch.device) -> tuple[str, str]:
        draws(rank, device)
        return os.environ["RANK"], os.environ["WORLD_SIZE"]

    assert run(program, 2).values == [("0", "2"), ("1", "2")]
    assert (os.environ["RANK"], os.environ.get("WORLD_SIZE")) == ("7", None)
    assert (torch.rand(()).item(), random.random(), float(np.random.rand())) == wanted


def test_both_receive() -> None:
    assert told(lambda rank, device: dist.recv(torch.ones(2, device=device), 1 - rank), 2, Deadlock) == (
        "no rank can go on: rank 0 waits in message 1 from rank 1 to rank 0 for rank 1; rank 1 waits in message 1 from "
        "rank 0 to rank 1 for rank 0" + SAME_ORDER
    )


def test_a_member_is_missing_that_has_ended() -> None:
    def program(rank: int, device: torch.device) -> None:
        if rank != 1:
            dist.all_reduce(torch.ones(2, device=device))

    def whole(rank: int) -> None:
        dist.init_process_group("sim")
        program(rank, torch.device("sim", rank))

    with pytest.raises(Deadlock) as caught:
        run_ranks(whole, 3, hardware=CLUSTER)
    caught.value.__traceback__ = None
    wait = "in all_reduce 1 of ranks 0, 1, 2 for rank 1, which has ended"
    assert str(caught.value) == f"no rank can go on: rank 0 waits {wait}; rank 2 waits {wait}" + SAME_ORDER


def test_a_rank_that_fails_fails_the_run_and_the_others_know_why() -> None:
    """The run's error is the program's own, not the deadlock that it led to."""
    seen: list[str] = []

    def program(rank: int, device: torch.device) -> None:
        if rank == 2:
            raise KeyError("no batch")
        try:
            dist.barrier()
        except Deadlock as error:
            seen.append(str(error))
            raise

    assert told(program, 3, KeyError) == "'no batch'"
    assert len(seen) == 2
    assert "barrier 1 of ranks 0, 1, 2 for rank 2, which ended with KeyError: 'no batch'" in seen[0]


def test_a_missing_key_of_the_store() -> None:
    def program(rank: int, device: torch.device) -> None:
        store = dist.distributed_c10d._get_default_store()
        store.wait(["never"])

    text = told(program, 2, Deadlock)
    assert "rank 0 waits in the store, for default_pg/never," in text or "never" in text


Mismatched = Callable[[int, torch.device], object]


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            lambda rank, device: dist.all_reduce(torch.ones(2 + rank, device=device)),
            "rank 0 calls all_reduce of 8 bytes, float32, SUM, but rank 1 calls all_reduce of 12 bytes, float32, SUM",
        ),
        (
            lambda rank, device: dist.all_reduce(
                torch.ones(2, device=device, dtype=[torch.int32, torch.float32][rank])
            ),
            "rank 0 calls all_reduce of 8 bytes, int32, SUM, but rank 1 calls all_reduce of 8 bytes, float32, SUM",
        ),
        (
            lambda rank, device: dist.broadcast(torch.ones(2, device=device), rank),
            "rank 0 calls broadcast of 8 bytes, float32, root 0, but rank 1 calls broadcast of 8 bytes, float32",
        ),
        (
            lambda rank, device: (
                dist.barrier() if rank else dist.all_reduce(torch.ones(2, device=device), dist.ReduceOp.MAX)
            ),
            "rank 0 calls all_reduce of 8 bytes, float32, MAX, but rank 1 calls barrier",
        ),
        (
            lambda rank, device: dist.all_reduce(torch.ones(2, device="cpu" if rank else device)),
            "rank 0 has its tensor on a device, but rank 1 has its own on the CPU: move both to the same kind",
        ),
        (
            lambda rank, device: dist.all_to_all_single(
                torch.ones(4, device=device), torch.ones(4, device=device), [2, 2], [1 + rank, 3 - rank]
            ),
            "rank 0 sends 1 numbers to rank 0, which expects 2: give both the same sizes",
        ),
        (
            lambda rank, device: (
                dist.recv(torch.ones(3, device=device), 0) if rank else dist.send(torch.ones(2, device=device), 1)
            ),
            "rank 0 calls message of 8 bytes, float32, but rank 1 calls message of 12 bytes, float32",
        ),
    ],
    ids=["sizes", "types", "roots", "operations", "places", "rows", "messages"],
)
def test_members_that_disagree(program: Mismatched, sentence: str) -> None:
    text = told(program, 2, Mismatch)
    assert sentence in text
    assert text.startswith("in ")


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            lambda rank, device: dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2, device=device)),
            "mixes tensors of the CPU and of device sim: move them to one of the two",
        ),
        (
            lambda rank, device: dist.all_to_all_single(torch.ones(3, device=device), torch.ones(3, device=device)),
            "all_to_all of 3 rows over 2 ranks: give a multiple of 2, or sizes",
        ),
        (lambda rank, device: dist.recv(torch.ones(3, device=device)), "name the sender"),
        (
            lambda rank, device: dist.all_gather(list(torch.ones(3, 2, device=device)), torch.ones(2, device=device)),
            "was given a list of 3 tensors by member 0 of 2: give one for each member",
        ),
        (
            lambda rank, device: dist.all_gather(list(torch.ones(2, 3, device=device)), torch.ones(2, device=device)),
            "was given 2 numbers and 3 to go together by member 0: give tensors of one size",
        ),
        (
            lambda rank, device: dist.reduce_scatter(
                torch.ones(5, device=device), list(torch.ones(2, 4, device=device))
            ),
            "was given 4 numbers and 5 to go together by member 0: give tensors of one size",
        ),
        (
            lambda rank, device: dist.scatter(
                torch.ones(5, device=device), None if rank else list(torch.ones(2, 4, device=device))
            ),
            "was given 5 numbers and 4 to go together by member 0: give tensors of one size",
        ),
        (lambda rank, device: run_ranks(lambda _: None, 1), "run_ranks was called by a rank: call it once, outside"),
    ],
    ids=["mixed", "indivisible", "from anyone", "lists", "gathered", "reduced", "scattered", "nested"],
)
def test_what_is_refused(program: Mismatched, sentence: str) -> None:
    assert sentence in told(program, 2, InvalidInput)


def test_too_many_ranks_and_none() -> None:
    with pytest.raises(InvalidInput, match="hardware 'sim-cluster' describes 8 devices, not 9: ask for fewer"):
        run_ranks(lambda rank: None, 9, hardware=CLUSTER)
    with pytest.raises(InvalidInput, match="hardware 'sim-tiny' has 1 device, but there are 2 ranks"):
        run_ranks(lambda rank: None, 2, hardware="conf/hardware/sim-tiny.json")
    with pytest.raises(InvalidInput, match="ranks is 0: give a whole number, at least 1"):
        run_ranks(lambda rank: None, 0)
    with pytest.raises(InvalidInput, match="ranks is '4': give a whole number"):
        run_ranks(lambda rank: None, "4")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="timeout_s is -1: give seconds above 0"):
        run_ranks(lambda rank: None, 2, timeout_s=-1)
    with pytest.raises(InvalidInput, match="algorithm is 'tre': choose of 'ring', 'tree', 'fastest'"):
        run_ranks(lambda rank: None, 2, algorithm="tre")  # type: ignore[arg-type]


def test_a_group_outside_of_a_run_is_refused() -> None:
    run(lambda rank, device: None, 1)
    store = torch._C._distributed_c10d.HashStore()
    with pytest.raises(InvalidInput, match="call init_process_group within run_ranks, or after join"):
        dist.init_process_group("sim", store=store, rank=0, world_size=1)
    assert not dist.is_initialized()


def test_a_rank_that_waits_in_another_way_is_told() -> None:
    """It holds its turn, so that what it waits for never comes."""
    given_up: list[bool] = []

    def program(rank: int, device: torch.device) -> None:
        if rank == 0:
            for _ in range(500):
                time.sleep(0.01)
                if given_up:
                    return
        dist.barrier()

    with pytest.raises(Stuck, match=r"rank 0 has neither computed nor waited .* for 0\.2 s, .* or raise timeout_s"):
        run(program, 2, timeout_s=0.2)
    given_up.append(True)


def test_groups_are_made_and_destroyed_again_and_again() -> None:
    def program(rank: int) -> list[float]:
        found = []
        for turn in range(3):
            dist.init_process_group("sim")
            mine = torch.full((2,), float(rank + turn), device=f"sim:{rank}")
            dist.all_reduce(mine)
            found.append(mine[0].item())
            dist.destroy_process_group()
        return found

    assert run_ranks(program, 3, hardware=CLUSTER).values == [[3.0, 6.0, 9.0]] * 3


def test_a_group_is_made_again_before_others_have_made_the_first() -> None:
    def program(rank: int) -> float:
        dist.init_process_group("sim")
        dist.destroy_process_group()
        dist.init_process_group("sim")
        mine = torch.ones(2, device=f"sim:{rank}")
        dist.all_reduce(mine)
        return mine[0].item()

    assert run_ranks(program, 3, hardware=CLUSTER).values == [3.0] * 3


def test_a_run_leaves_nothing_behind() -> None:
    """Neither bytes on the devices nor a group; a second run is as the first."""

    def program(rank: int, device: torch.device) -> float:
        mine = torch.ones(1 << 10, device=device)
        dist.all_reduce(mine)
        return mine.sum().item()

    def bytes_in_use() -> list[int]:
        return [sim.at(rank).bytes_in_use() for rank in range(2)]

    sim = run(lambda rank, device: None, 2).sim
    settled(lambda: sum(bytes_in_use()))
    before = bytes_in_use()
    first = run(program, 2)
    assert not dist.is_initialized()
    assert bytes_in_use() == before
    again = run(program, 2)
    assert (again.values, spans(again), again.turns) == (first.values, spans(first), first.turns)


def test_a_failed_run_leaves_nothing_behind() -> None:
    """Nobody goes on to wait for what never happens, and what it held is free once its error is."""

    def program(rank: int, device: torch.device) -> None:
        dist.all_reduce(torch.ones(1 << 20, device=device), async_op=True)
        dist.recv(torch.ones(2, device=device), 1 - rank)

    sim = run(lambda rank, device: None, 2).sim
    before = settled(lambda: sum(sim.at(rank).bytes_in_use() for rank in range(2)))
    told(program, 2, Deadlock)
    settled(lambda: sum(sim.at(rank).bytes_in_use() for rank in range(2)))
    sim.close()
    assert sum(sim.at(rank).bytes_in_use() for rank in range(2)) == before


def test_an_operation_that_nobody_awaits_must_have_members_all_the_same() -> None:
    def program(rank: int, device: torch.device) -> None:
        if rank == 0:
            dist.isend(torch.ones(2, device=device), 1)

    assert told(program, 2, Deadlock).startswith(
        "no rank can go on: rank 0 waits in message 1 from rank 0 to rank 1 for rank 1, which has ended"
    )


def spans(found: RankRun[float]) -> list[tuple[object, ...]]:
    """The trace without the streams' numbers, which count on through the process."""
    return [tuple(record)[1:] for record in found.trace]


def test_a_run_that_is_interrupted_ends_its_ranks() -> None:
    """As by Ctrl-C while the main thread watches: the ranks end at their next turn."""
    import _thread
    import threading

    before = threading.active_count()

    def program(rank: int, device: torch.device) -> None:
        if rank == 1:
            _thread.interrupt_main()
            time.sleep(0.2)
        dist.barrier()
        dist.barrier()

    with pytest.raises(KeyboardInterrupt):
        run(program, 2)
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert run(lambda rank, device: rank, 2).values == [0, 1]
