"""Who forgets to wait reads what was there before, on every rank, and the race check names both accesses there."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from runtime.device import Race
from runtime.ranks import RankRun
from tests.runtime.ranks.cluster import Program, run

pytestmark = pytest.mark.usefixtures("plain_sim")
RANKS = 3


def recorded(program: Program[list[float]]) -> RankRun[list[float]]:
    return run(program, RANKS, races="record")


def named(found: RankRun[list[float]]) -> list[set[tuple[str, str]]]:
    """By rank, the operations of the races on its device."""
    by_rank: list[set[tuple[str, str]]] = [set() for _ in range(RANKS)]
    for race in found.races:
        by_rank[race.second.device].add(pair(race))
    return by_rank


def pair(race: Race) -> tuple[str, str]:
    return race.first.op, race.second.op


def test_a_forgotten_wait_reads_what_was_there_before_on_every_rank() -> None:
    """Also on the last one, whose call let the operation happen."""

    def program(rank: int, device: torch.device) -> list[float]:
        mine = torch.full((4,), float(rank), device=device)
        work = dist.all_reduce(mine, async_op=True)
        stale = mine + 0
        assert work is not None
        work.wait()
        return [stale[0].item(), mine[0].item()]

    found = recorded(program)
    assert found.values == [[float(rank), 3.0] for rank in range(RANKS)]
    assert named(found) == [{("all_reduce", "add")}] * RANKS
    assert all("let stream 0 of sim:" in race.sentence for race in found.races)


def test_a_race_fails_the_rank_that_reads_where_races_are_raised() -> None:
    def program(rank: int, device: torch.device) -> list[float]:
        mine = torch.ones(4, device=device)
        work = dist.all_reduce(mine, async_op=True)
        read = mine + 0
        return [read[0].item(), work is None]

    with pytest.raises(RuntimeError, match=r"read by 'add' .* is not ordered after write by 'all_reduce'") as caught:
        run(program, RANKS)
    assert any("This was rank" in note for note in caught.value.__notes__)


def test_what_only_another_rank_could_order_is_judged_when_it_is_known() -> None:
    """Rank 0 writes what an operation behind a pending one writes: a race, unless rank 1 waits for the write before.

    It is raised at the rank's end at the latest, though nothing runs there any more.
    """

    def program(rank: int, device: torch.device, ordered: bool) -> None:
        parts = torch.zeros(2, 4, device=device)
        others = [dist.new_group([0, 1]) for _ in range(2)]
        torch.accelerator.synchronize()
        dist.barrier()
        flag = torch.zeros(1, device=device)

        def both() -> list[dist.Work | None]:
            return [dist.all_reduce(part, group=others[0], async_op=True) for part in parts]

        if rank == 0:
            works = both()
            parts[1].zero_()  # before the second sum, if at all, by way of rank 1
            works += [dist.all_reduce(flag, group=others[1], async_op=True)] if ordered else []
        else:
            if ordered:
                dist.all_reduce(flag, group=others[1])
            works = both()
        for work in works:
            assert work is not None
            work.wait()

    for ordered in (True, False):
        found = run(partial(program, ordered=ordered), 2, races="record")
        assert [pair(race) for race in found.races] == ([] if ordered else [("all_reduce", "zero_")])
    run(partial(program, ordered=True), 2)
    with pytest.raises(RuntimeError, match=r"write by 'zero_' .* is not ordered after write by 'all_reduce'"):
        run(partial(program, ordered=False), 2)


def test_a_send_buffer_that_is_written_too_early() -> None:
    def program(rank: int, device: torch.device) -> list[float]:
        mine, gathered = torch.ones(4, device=device), torch.empty(4 * RANKS, device=device)
        work = dist.all_gather_into_tensor(gathered, mine, async_op=True)
        mine.zero_()
        assert work is not None
        work.wait()
        return gathered.tolist()

    assert all(("all_gather_single", "zero_") in pairs for pairs in named(recorded(program)))


def test_reading_what_is_sent_is_no_race() -> None:
    def program(rank: int, device: torch.device) -> list[float]:
        mine, gathered = torch.ones(4, device=device), torch.empty(4 * RANKS, device=device)
        work = dist.all_gather_into_tensor(gathered, mine, async_op=True)
        twice = mine * 2
        assert work is not None
        work.wait()
        return [gathered.sum().item(), twice.sum().item()]

    found = recorded(program)
    assert found.races == []
    assert found.values == [[12.0, 8.0]] * RANKS


def test_awaiting_the_first_of_two_says_nothing_of_the_second() -> None:
    """Awaiting the second says all of both: a group's operations come one after the other."""

    def program(rank: int, device: torch.device, awaited: int) -> list[float]:
        parts = torch.full((2, 4), float(rank), device=device)
        works = [dist.all_reduce(part, async_op=True) for part in parts]
        work = works[awaited]
        assert work is not None
        work.wait()
        read = [(part + 0) for part in parts]
        torch.accelerator.synchronize()
        return [one[0].item() for one in read]

    first = recorded(lambda rank, device: program(rank, device, 0))
    assert first.values == [[3.0, float(rank)] for rank in range(RANKS)]
    assert named(first) == [{("all_reduce", "add")}] * RANKS
    second = recorded(lambda rank, device: program(rank, device, 1))
    assert (second.values, second.races) == ([[3.0, 3.0]] * RANKS, [])


def test_a_tensor_that_is_dropped_before_the_wait_lives_until_then() -> None:
    """Its memory is not given to the tensors that are made meanwhile, whether the work is kept or dropped."""

    def program(rank: int, device: torch.device) -> list[float]:
        works = [dist.all_reduce(torch.ones(1 << 12, device=device), async_op=True) for _ in range(3)]
        dist.all_reduce(torch.ones(1 << 12, device=device), async_op=True)
        others = [torch.zeros(1 << 12, device=device) for _ in range(6)]
        for work in works:
            assert work is not None
            work.wait()
        return [other.sum().item() for other in others]

    found = recorded(program)
    assert (found.values, found.races) == ([[0.0] * 6] * RANKS, [])


def test_a_message_that_was_awaited_is_let_go_though_its_work_is_kept() -> None:
    """Pipelining's schedules keep works of messages that are long gone: their tensors may go all the same."""

    def program(rank: int, device: torch.device) -> list[int]:
        found, mine = [], torch.ones(1 << 12, device=device)
        work = dist.isend(mine, 1 - rank) if rank == 0 else dist.irecv(mine, 1 - rank)
        assert work is not None
        work.wait()
        del mine
        found.append(torch.accelerator.memory_allocated(rank))
        work.wait()  # and again, which changes nothing
        return found

    assert run(program, 2).values == [[0], [1 << 14]]  # what was received is the work's result


def test_the_host_that_waits_for_the_device_ends_forgotten_operations() -> None:
    def program(rank: int, device: torch.device) -> list[float]:
        mine = torch.full((4,), float(rank), device=device)
        work = dist.all_reduce(mine, async_op=True)
        torch.accelerator.synchronize()
        assert work is not None
        return (mine + 0).tolist()

    found = recorded(program)
    assert (found.values, found.races) == ([[3.0] * 4] * RANKS, [])


def test_a_wait_orders_the_stream_that_is_current_only() -> None:
    def program(rank: int, device: torch.device) -> list[float]:
        mine = torch.full((4,), float(rank), device=device)
        work = dist.all_reduce(mine, async_op=True)
        side = torch.Stream(device=device)
        assert work is not None
        with side:
            work.wait()
            good = mine + 0
        bad = mine + 0
        torch.accelerator.synchronize()
        return [good[0].item(), bad[0].item()]

    found = recorded(program)
    assert [pairs for pairs in named(found)] == [{("all_reduce", "add")}] * RANKS
    assert [value[0] for value in found.values] == [3.0] * RANKS


def test_a_receiver_that_forgets_to_wait() -> None:
    """Only the receivers' reads race: who sends may go on reading."""

    def program(rank: int, device: torch.device) -> list[float]:
        mine = torch.full((4,), float(rank), device=device)
        works = [dist.isend(mine, other) for other in (1, 2)] if rank == 0 else [dist.irecv(mine, 0)]
        read = mine + 0
        for work in works:
            assert work is not None
            work.wait()
        return [read[0].item(), mine[0].item()]

    found = recorded(program)
    assert found.values == [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    assert named(found) == [set(), {("recv", "add")}, {("recv", "add")}]
