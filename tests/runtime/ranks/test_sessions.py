"""Ranks of one process, each within a memory budget of its own: the same bits, and every budget is kept."""

from functools import cache

import pytest
import torch
import torch.distributed as dist

from runtime.device.native import core
from runtime.ranks import RankRun, run_ranks
from runtime.storage.access import is_swapped_out, swap_out
from runtime.swap import session
from tests.runtime.ranks.budgets import STEPS, Rank, job, plain, ran, same, shares, train_within
from tests.runtime.ranks.cluster import CLUSTER, run
from tests.soaking import in_soak

pytestmark = pytest.mark.usefixtures("plain_sim")


@cache
def within_share(style: str, ranks: int, share: float) -> RankRun[Rank]:
    """All ranks within the same share of what they take without a budget."""
    return ran(style, shares(style, [share] * ranks))


@pytest.mark.parametrize(
    ("style", "ranks", "share"),
    [
        ("ddp", 2, 0.6),
        in_soak("ddp", 4, 0.6),
        ("fsdp2", 2, 0.6),
        ("tp", 2, 0.6),
        in_soak("tp", 4, 0.6),
        ("1f1b", 2, 0.75),
    ],
)
def test_every_rank_keeps_its_budget_and_every_bit(style: str, ranks: int, share: float) -> None:
    """A pipeline's last rank needs more at once: two tensors of logits are 0.6 of what it takes."""
    free, budgets = plain(style, ranks), shares(style, [share] * ranks)
    limited = within_share(style, ranks, share)
    assert limited.races == []
    for alone, within, budget in zip(free.values, limited.values, budgets, strict=True):
        assert same(within.trained, alone.trained)
        assert budget is not None
        assert within.peak_bytes <= budget < alone.peak_bytes
        report = within.report
        assert report is not None
        assert report.iterations == STEPS
        assert report.counts.in_time > 30
        assert any(policy.kept for policy in report.policies)
        assert report.waits_under_lock == 0


def test_ranks_may_have_different_budgets_or_none() -> None:
    free, budgets = plain("ddp", 4), shares("ddp", [0.6, 0.8, None, 0.7])
    limited = ran("ddp", budgets)
    assert limited.races == []
    swapped = []
    for alone, within, budget in zip(free.values, limited.values, budgets, strict=True):
        assert same(within.trained, alone.trained)
        assert within.peak_bytes <= (budget or alone.peak_bytes)
        swapped.append(0 if within.report is None else within.report.counts.out_bytes)
    assert swapped[0] > swapped[3] > swapped[1] > swapped[2] == 0


def test_one_rank_alone_has_a_session() -> None:
    """The others' operators, backward passes and optimizers are none of its iterations'."""
    free, budgets = plain("ddp", 2), shares("ddp", [0.6, None])
    both = within_share("ddp", 2, 0.6)
    limited = ran("ddp", budgets)
    assert [same(one.trained, other.trained) for one, other in zip(limited.values, free.values, strict=True)] == [
        True,
        True,
    ]
    mine, beside = limited.values[0], both.values[0]
    assert [one.operators for one in mine.iterations] == [one.operators for one in beside.iterations]
    assert limited.values[1].peak_bytes == free.values[1].peak_bytes


def test_what_a_collective_computes_is_no_operator_of_the_rank_that_came_last() -> None:
    """Else the ranks' iterations would differ by who that was."""
    limited = within_share("ddp", 2, 0.6)
    counted = [[one.operators for one in rank.iterations] for rank in limited.values]
    assert counted[0] == counted[1]
    assert len(set(counted[0][2:])) == 1  # the first makes the optimizer's states, the second DDP's own buckets


def test_the_same_run_again_takes_the_same_nanoseconds() -> None:
    one, other = within_share("tp", 2, 0.6), ran("tp", shares("tp", [0.6, 0.6]))
    assert one.makespan_ns == other.makespan_ns
    assert [rank.iterations for rank in one.values] == [rank.iterations for rank in other.values]


def test_by_shapes_alone_ranks_keep_their_budgets_and_take_as_long() -> None:
    """To some hundredths of a percent: which of two storages leaves first where either does may differ."""
    budgets = shares("ddp", [0.6, 0.7])
    real, shapes = ran("ddp", budgets), ran("ddp", budgets, shapes_only=True)
    assert shapes.makespan_ns == pytest.approx(real.makespan_ns, rel=1e-3)
    for within, budget in zip(shapes.values, budgets, strict=True):
        assert budget is not None
        assert within.peak_bytes <= budget
        assert within.report is not None
        assert within.report.counts.in_time > 30


def test_an_error_in_one_rank_ends_its_session_and_no_other() -> None:
    """It trains on without one, and both end with the numbers of ranks that never had any."""
    budgets, states = shares("ddp", [0.6, 0.6]), dict[int, list[bool]]()

    def program(rank: int) -> object:
        dist.init_process_group("sim")
        device, budget = torch.device("sim", rank), budgets[rank]
        assert budget is not None
        if rank == 0:
            mine = session(budget, device=device)
            dist.barrier()
            states[0] = [mine.active]
            mine.close()
        else:
            mine = session(budget, device=device)
            held = torch.ones(1 << 14, device=device)
            swap_out(held)
            with pytest.raises(ZeroDivisionError), mine:
                assert is_swapped_out(held)
                held.add_(1 // 0)
            states[1] = [mine.active, is_swapped_out(held), torch.accelerator.get_memory_info(rank)[1] > budget]
            assert held.sum().item() == 1 << 14
            dist.barrier()
        found = train_within(job("ddp", 2), rank, budgets[rank] if rank == 0 else None)
        dist.destroy_process_group()
        return found

    run_of_both = run_ranks(program, 2, hardware=CLUSTER)
    assert states == {0: [True], 1: [False, False, True]}
    for alone, within in zip(plain("ddp", 2).values, run_of_both.values, strict=True):
        assert same(within.trained, alone.trained)  # type: ignore[attr-defined]


def test_an_error_that_ends_the_run_closes_all_sessions() -> None:
    def program(rank: int, device: torch.device) -> None:
        with session("1MiB", device=device):
            total = torch.ones(1 << 10, device=device)
            dist.all_reduce(total)
            if rank == 1:
                raise ValueError("rank 1 gives up")
            dist.all_reduce(total)

    with pytest.raises(ValueError, match="rank 1 gives up") as caught:
        run(program, 2)
    caught.value.__traceback__ = None
    assert not core.swap_guard_is_on()
    again = ran("ddp", shares("ddp", [0.6, 0.6]))
    assert all(
        same(one.trained, other.trained) for one, other in zip(again.values, plain("ddp", 2).values, strict=True)
    )


def test_what_is_on_the_host_comes_back_for_a_collective_and_stays_until_it_is_awaited() -> None:
    def program(rank: int, device: torch.device) -> tuple[list[bool], list[str | None], float]:
        total = torch.full((1 << 12,), float(rank + 1), device=device)
        out, stays = [], []
        with session("1MiB", device=device):
            swap_out(total)
            out.append(is_swapped_out(total))
            work = dist.all_reduce(total, async_op=True)
            assert work is not None
            out.append(is_swapped_out(total))
            stays.append(core.why_it_stays(total))
            work.wait()
            stays.append(core.why_it_stays(total))
            swap_out(total)
            out.append(is_swapped_out(total))
            return out, stays, total.sum().item()

    held = "somebody else knows its address"
    assert run(program, 2).values == [([True, False, True], [held, None], 3.0 * (1 << 12))] * 2


def test_what_a_dropped_work_used_may_leave_once_the_work_is_gone() -> None:
    def program(rank: int, device: torch.device) -> list[str | None]:
        given = torch.ones(1 << 12, device=device)
        other = 1 - rank
        works = [dist.isend(given, other) if rank == 0 else dist.irecv(given, other)]
        stays = [core.why_it_stays(given)]
        dist.barrier()
        works.clear()
        return [*stays, core.why_it_stays(given)]

    assert run(program, 2).values == [["somebody else knows its address", None]] * 2
