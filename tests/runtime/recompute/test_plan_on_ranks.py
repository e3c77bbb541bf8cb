"""DDP, FSDP2 and DTensor on two ranks: the same training, each rank by a plan of its own."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from experiments.models.gpt import Gpt, GptShape
from runtime.device import memory_stats
from runtime.ranks import run_ranks
from runtime.ranks.report import COMMUNICATION
from runtime.recompute import plan
from solvers.ir.errors import InvalidInput
from tests.accelerators import prepare_sim

HARDWARE = "conf/hardware/sim-cluster.json"
SHAPE = GptShape(layers=4, width=32, heads=2, context=64, batch=16, dropout=0.1)
REFUSED = prepare_sim()
pytestmark = [pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED)), pytest.mark.usefixtures("plain_sim")]


STYLES = {"widen": ColwiseParallel(), "narrow": RowwiseParallel()}


def wrapped(kind: str, model: Gpt, rank: int) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    mesh = init_device_mesh("sim", (2,))
    for block in model.blocks:
        if kind == "tp":
            parallelize_module(block, mesh, STYLES)
        else:
            fully_shard(block, mesh=mesh)
    if kind == "tp":
        return model
    fully_shard(model, mesh=mesh)
    return model


def program(
    rank: int, kind: str, share: float | None, peak: int, solver: str = "heu"
) -> tuple[list[torch.Tensor], list[int], int]:
    """Losses, gradients and weights of this rank; its steps' peaks; operators that ran again."""
    dist.init_process_group("sim")
    device = torch.device(f"sim:{rank}")
    torch.manual_seed(0)
    model = wrapped(kind, Gpt(SHAPE).to(device), rank)
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for whole in ("opt", "joint") if kind == "fsdp2" else ():
        with pytest.raises(InvalidInput, match="FSDP shards block 0, and gives its parameters back between the passes"):
            plan(model, budget=1 << 30, solver=whole)
    session = None if share is None else plan(model, budget=int(share * peak), solver=solver)
    left, peaks = [], []

    def step() -> None:
        words = torch.randint(256, (SHAPE.batch, SHAPE.context)).to(device)
        optimizer.zero_grad()
        loss = model(words, words.roll(1, 1))
        loss.backward()
        optimizer.step()
        left.append(loss.detach().cpu())
        peaks.append(memory_stats(device).peak_bytes)

    for _ in range(4):
        torch.accelerator.reset_peak_memory_stats(device)
        if session is None:
            step()
        else:
            with session:
                step()
    for parameter in model.parameters():
        for one in (parameter, parameter.grad):
            assert one is not None
            left.append(getattr(one, "_local_tensor", one).detach().cpu().clone())
    report = None if session is None else session.report()
    dist.barrier()
    return left, peaks, 0 if report is None else report.on_demand + report.ahead


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "tp"])
def test_ranks_train_the_same_within_their_budgets(kind: str) -> None:
    free = run_ranks(partial(program, kind=kind, share=None, peak=0), 2, hardware=HARDWARE).values
    peak = max(max(one[1]) for one in free)
    kept = run_ranks(partial(program, kind=kind, share=0.8, peak=peak), 2, hardware=HARDWARE).values
    for mine, plain in zip(kept, free, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine[0], plain[0], strict=True))
        assert max(mine[1][2:]) <= int(0.8 * peak)
        assert mine[2] > 0


def test_no_rank_runs_a_collective_again_by_a_plan_of_its_own() -> None:
    """It would wait for the others, whose plans may be other ones."""

    def run(share: float | None, peak: int) -> Any:
        asked = partial(program, kind="tp", share=share, peak=peak, solver="full")
        return run_ranks(asked, 2, hardware=HARDWARE)

    free = run(None, 0)
    kept = run(0.8, max(max(one[1]) for one in free.values))
    assert [one[2] > 0 for one in kept.values] == [True, True]
    talks = [
        [sum(span.lane.startswith(COMMUNICATION) for span in report.spans) for report in one.reports]
        for one in (free, kept)
    ]
    assert talks[0] == talks[1] and min(talks[0]) > 0
