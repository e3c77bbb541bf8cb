"""Virtual times: closed forms to the nanosecond, links that are shared, pipelines as predicted, each run the same."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from runtime.device import TraceRecord
from runtime.ranks import RankRun
from solvers.ir.hardware import Device, Hardware, Link
from solvers.timeline import pipeline
from solvers.timeline.collectives import accelerators, message_ns
from tests.runtime.ranks.cluster import run

pytestmark = pytest.mark.usefixtures("plain_sim")
LINK_BYTES_PER_S, LATENCY_NS, REACHED = 3_333_333_333, 5_000, Fraction(4, 5)
"""A link within a node of `sim-cluster`, and what part of it collectives reach."""


def comms(found: RankRun[None], rank: int) -> list[TraceRecord]:
    return [record for record in found.trace if record.kind == "comm" and record.device == rank]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_ring_takes_its_closed_form(ranks: int) -> None:
    """All-reduce 2(t−1)(s/t/B + L), the others half of it; B is what t − 1 links of a device give together."""
    numbers = [1, 12, 3_000, 120_000, 12_345_684]

    def program(rank: int, device: torch.device) -> None:
        for size in numbers:
            dist.all_reduce(torch.empty(size, dtype=torch.uint8, device=device))
        for size in numbers:
            mine = torch.empty(size, dtype=torch.uint8, device=device)
            dist.all_gather_into_tensor(torch.empty(size * ranks, dtype=torch.uint8, device=device), mine)
        for size in numbers:
            mine = torch.empty(size * ranks, dtype=torch.uint8, device=device)
            dist.reduce_scatter_tensor(torch.empty(size, dtype=torch.uint8, device=device), mine)

    found = run(program, ranks, shapes_only=True)
    per_byte = 10**9 / (REACHED * LINK_BYTES_PER_S * (ranks - 1))
    all_reduces = [2 * (ranks - 1) * (Fraction(size, ranks) * per_byte + LATENCY_NS) for size in numbers]
    others = [(ranks - 1) * (size * per_byte + LATENCY_NS) for size in numbers] * 2
    for rank in range(ranks):
        took = [record.end_ns - record.start_ns for record in comms(found, rank)]
        # Up to the next nanosecond, but for a millionth of one.
        assert took == [math.ceil(round(one, 6)) for one in (*all_reduces, *others)]


def test_an_operation_begins_when_the_last_member_is_ready() -> None:
    """Rank 1 computes before it; both ranks' shares run at the same time, right after that."""

    def program(rank: int, device: torch.device) -> None:
        mine = torch.ones(1 << 20, device=device)
        for _ in range(5 * rank):
            mine += 1
        dist.all_reduce(mine)

    found = run(program, 2)
    (first,), (second,) = comms(found, 0), comms(found, 1)
    assert (first.start_ns, first.end_ns) == (second.start_ns, second.end_ns)
    assert first.start_ns == max(r.end_ns for r in found.trace if r.kind != "comm" and r.device == 1)


@pytest.mark.parametrize(
    ("groups", "one_by_one"),
    [(([0, 4], [1, 5]), True), (([0, 1], [2, 3]), False), (([0, 1], [0, 2]), False), (([0, 1, 2], [1, 2, 3]), True)],
    ids=["one network", "links of their own", "other links of one device", "one link in common"],
)
def test_groups_that_share_a_link_take_turns(groups: tuple[list[int], list[int]], one_by_one: bool) -> None:
    def program(rank: int, device: torch.device) -> None:
        made = [dist.new_group(group) for group in groups]
        mine = [torch.ones(1 << 18, device=device) for _ in made]
        torch.accelerator.synchronize()
        dist.barrier()
        works = [dist.all_reduce(mine[i], group=made[i], async_op=True) for i in (0, 1) if rank in groups[i]]
        for work in works:
            assert work is not None
            work.wait()

    ranks = max(max(group) for group in groups) + 1
    found = run(program, ranks)
    first, second = (
        next(r for r in reversed(comms(found, one)) if r.op == "all_reduce") for one in (groups[0][0], groups[1][-1])
    )
    if one_by_one:
        assert first.end_ns == second.start_ns or second.end_ns == first.start_ns
    else:
        assert second.start_ns < first.end_ns
        assert first.start_ns < second.end_ns


def copies_beside_sums(rank: int, device: torch.device, copies_first: bool) -> None:
    """Ranks 0 and 1 sum three times; beside it rank 1 copies to rank 0's device, then to rank 2's, on a side stream."""
    mine = torch.ones(1 << 16, device=device)
    given = torch.ones(1 << 15, device=device)
    taken = [torch.ones(1 << 15, device=f"sim:{other}") for other in (0, 2)] if rank == 1 else []
    group, side, works = dist.new_group([0, 1]), torch.Stream(device=device), []
    torch.accelerator.synchronize()
    dist.barrier()
    for copies in (copies_first, not copies_first):
        for target in taken if copies else ():
            with side:
                target.copy_(given)
        if rank < 2 and not copies:
            works = [dist.all_reduce(mine, group=group, async_op=True) for _ in range(3)]
    for work in works:
        assert work is not None
        work.wait()
    torch.accelerator.synchronize()


@pytest.mark.parametrize("copies_first", [False, True])
def test_a_copy_between_devices_and_a_sum_take_turns_on_their_link(copies_first: bool) -> None:
    """To the nanosecond, and the same each time; the copy to rank 2 goes over a link of its own, right behind.

    A sum has its link once its last member has come, rank 1: before its copies or behind them.
    """
    found = run(partial(copies_beside_sums, copies_first=copies_first), 3)
    sums = [(r.start_ns, r.end_ns) for r in comms(found, 0) if r.op == "all_reduce"]
    near, far = [(r.start_ns, r.end_ns) for r in found.trace if r.kind == "peer"]
    copy_ns = LATENCY_NS + math.ceil(Fraction(10**9 * (4 << 15), LINK_BYTES_PER_S))
    sum_ns = 2 * (LATENCY_NS + Fraction(10**9 * (2 << 16)) / (REACHED * LINK_BYTES_PER_S))
    assert [end - start for start, end in (near, far)] == [copy_ns] * 2
    assert [end - start for start, end in sums] == [math.ceil(sum_ns)] * 3
    one_by_one = [near, *sums] if copies_first else [*sums, near]
    assert all(end == start for (_, end), (start, _) in pairwise(one_by_one))
    assert far[0] == near[1]  # the stream's order; sums do not hold it up
    again = run(partial(copies_beside_sums, copies_first=copies_first), 3)
    assert [tuple(record)[1:] for record in again.trace] == [tuple(record)[1:] for record in found.trace]


def uniform(stages: int) -> Hardware:
    """No launch takes time, and no message of a few bytes does: a quintillion bytes a second, no latency."""
    devices = tuple(
        Device(name=f"d{i}", memory_bytes=1 << 30, bytes_per_s=1_000_000_000, flops_per_s={"float32": 10**12})
        for i in range(stages)
    )
    links = tuple(Link(a=f"d{i}", b=f"d{i + 1}", bytes_per_s=10**18, latency_us=0.0) for i in range(stages - 1))
    hosts = tuple(Link(a=f"d{i}", b="host", bytes_per_s=10**18, latency_us=0.0) for i in range(stages))
    return Hardware(name="uniform", devices=devices, links=links + hosts)


def one_f_one_b(rank: int, stages: int, microbatches: int) -> list[str]:
    """The passes of a stage in order: as many forwards ahead as stages come after it."""
    ahead = min(stages - rank - 1, microbatches)
    return ["F"] * ahead + ["F", "B"] * (microbatches - ahead) + ["B"] * ahead


def gpipe(rank: int, stages: int, microbatches: int) -> list[str]:
    """All forwards, then all backwards."""
    return ["F"] * microbatches + ["B"] * microbatches


@pytest.mark.parametrize("order", [one_f_one_b, gpipe])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (2, 4), (4, 4), (4, 9), (8, 8), (8, 12)])
def test_a_uniform_pipeline_takes_its_closed_form(
    order: Callable[[int, int, int], list[str]], stages: int, microbatches: int
) -> None:
    """(M + P − 1)(f + b) to the nanosecond: equal stages, no launches, no time for messages."""
    numbers = 250_000  # f is one kernel that reads and writes them: 2 ms; b three.

    def program(rank: int, device: torch.device) -> None:
        work, sent, works = torch.empty(numbers, device=device), torch.empty(1, device=device), []
        received = torch.empty(1, device=device)
        for each in order(rank, stages, microbatches):
            before, after = (rank - 1, rank + 1) if each == "F" else (rank + 1, rank - 1)
            if 0 <= before < stages:
                dist.recv(received, before)
            for _ in range(1 if each == "F" else 3):
                work.neg_()
            if 0 <= after < stages:
                works.append(dist.isend(sent, after))

    found = run(program, stages, hardware=uniform(stages))
    assert {record.end_ns - record.start_ns for record in found.trace if record.kind != "comm"} == {2_000_000}
    assert found.makespan_ns == (microbatches + stages - 1) * (2_000_000 + 6_000_000)


def test_an_operation_does_not_wait_for_what_later_ones_wait_for() -> None:
    """Rank 0 has computed and issued both before rank 1 has begun: the first runs beside rank 0's later kernels."""

    def program(rank: int, device: torch.device) -> None:
        work, parts, works = torch.empty(250_000, device=device), torch.empty(2, device=device), []
        for part in parts:
            work.neg_()
            works.append(dist.all_reduce(part[None], async_op=True))
        for each in works:
            assert each is not None
            each.wait()

    found = run(program, 2, hardware=uniform(2))
    for rank in range(2):
        assert [record.start_ns for record in comms(found, rank)] == [2_000_000, 4_000_000]


WIDTH, BATCH, MICROBATCHES = 64, 256, 8


def stage_of(rank: int) -> nn.Module:
    generator = torch.Generator().manual_seed(rank)
    module = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.GELU(), nn.Linear(8 * WIDTH, WIDTH))
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return module


def squares(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def step_of_schedule(rank: int, device: torch.device, stages: int) -> None:
    """Two steps of PyTorch's own 1F1B, the first of which exchanges shapes."""
    schedule = Schedule1F1B(PipelineStage(stage_of(rank).to(device), rank, stages, device), MICROBATCHES, squares)
    inputs, targets = (torch.ones(BATCH * MICROBATCHES, WIDTH, device=device) for _ in range(2))
    for _ in range(2):
        torch.accelerator.synchronize()
        dist.barrier()
        torch.accelerator.synchronize()
        schedule.step(*([inputs] if rank == 0 else []), target=targets if rank == stages - 1 else None)


@pytest.mark.parametrize("stages", [4, 8])
def test_executed_1f1b_is_as_long_as_the_recurrence_says(stages: int) -> None:
    """Forward and backward times of the trace, and a message's, put into `solvers.timeline.pipeline`: ≤ 1 %."""
    found = run(lambda rank, device: step_of_schedule(rank, device, stages), stages)
    began = [max(r.end_ns for r in comms(found, rank) if r.op == "barrier") for rank in range(stages)]
    assert len(set(began)) == 1
    step = [record for record in found.trace if record.start_ns >= began[0]]
    forward, backward = [], []
    for rank in range(stages):
        mine = [record for record in step if record.device == rank and record.kind != "comm"]
        ahead = [record for record in mine if record.op in {"addmm", "gelu"}]
        lasts = sum(record.end_ns - record.start_ns for record in ahead)
        forward.append(round(lasts / MICROBATCHES / 1e3))
        backward.append(round((sum(r.end_ns - r.start_ns for r in mine) - lasts) / MICROBATCHES / 1e3))
    names = accelerators(found.sim.hardware)[:stages]
    hops = [round(message_ns(found.sim.hardware, *pair, BATCH * WIDTH * 4) / 1e3) for pair in pairwise(names)]
    executed = max(record.end_ns for record in step) - began[0]
    predicted = float(pipeline(forward, backward, microbatches=MICROBATCHES, p2p_us=hops).makespan_us) * 1e3
    assert abs(executed - predicted) <= 0.01 * executed


def training(rank: int, device: torch.device) -> list[float]:
    """Three steps of data-parallel training."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(stage_of(0).to(device), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = squares(model(torch.rand(16, WIDTH, device=device)), torch.ones(16, WIDTH, device=device))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_runs_are_the_same_each_time(noise: float) -> None:
    """Losses, clocks, traces and turns, with noise too; another seed gives other times and the same losses."""

    def told(seed: int) -> tuple[list[list[float]], list[tuple[object, ...]], int]:
        found = run(training, 4, noise=noise, seed=seed)
        return found.values, [tuple(record)[1:] for record in found.trace], found.turns

    first, again, other = told(1), told(1), told(2)
    assert first == again
    assert first[0] == other[0]
    assert (first[1] == other[1]) == (noise == 0)
