"""Joint plans on ranks whose blocks communicate: one plan for all, moves and recomputation inside their collectives."""

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from runtime.device import limited_memory, memory_stats
from runtime.ranks import RankRun, run_ranks
from runtime.recompute import RecomputeReport, RecomputeSession, plan
from runtime.recompute.joint import JointStep
from runtime.recompute.layer import BlockPolicy
from runtime.recompute.moves import Move
from runtime.recompute.work import Deed
from solvers.ir.solution import Limits
from tests.accelerators import prepared
from tests.runtime.recompute.test_ranks import AllReduced, Copied

HARDWARE = "conf/hardware/sim-cluster.json"
QUICK = Limits(time_s=math.inf, work=0.02)
WIDTH = 64


class Split(nn.Module):
    """Layers whose hidden features two ranks share: by DTensor, or by hand with synchronous sums as Megatron-LM has."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        share = 48 if by_hand else 96
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, share)
        self.down = nn.Linear(share, WIDTH, bias=not by_hand)
        self.by_hand = by_hand

    def forward(self, hidden: Tensor) -> Tensor:
        """With a residual; its activations take less time than a sum over both ranks."""
        normal = self.norm(hidden)
        given = Copied.apply(normal) if self.by_hand else normal  # type: ignore[no-untyped-call]
        inside = functional.gelu(functional.gelu(functional.gelu(self.up(given))))
        made = self.down(inside)
        summed = AllReduced.apply(made) if self.by_hand else made  # type: ignore[no-untyped-call]
        return hidden + functional.dropout(summed, 0.1)


@dataclass
class Trained:
    """What a rank has after some steps, on the CPU."""

    left: list[Tensor]
    peaks: list[int]
    session: RecomputeSession | None = None
    policies: Sequence[BlockPolicy] = ()

    @property
    def report(self) -> RecomputeReport:
        """Of its session."""
        assert self.session is not None
        return self.session.report()


def trained(device: torch.device, by_hand: bool, tokens: int, budget: int | None, solver: str = "joint") -> Trained:
    """Some steps of two microbatches; with a budget the device has that from the second step on, and no byte more."""
    gc.collect()
    torch.manual_seed(0)
    model = nn.Sequential(*(Split(by_hand) for _ in range(3))).to(device)
    if not by_hand:
        mesh = init_device_mesh(device.type, (2,))
        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    found = Trained([], [])
    if budget is not None:
        found.session = plan(model, budget=budget, solver=solver, blocks=list(model), limits=QUICK)
    with ExitStack() as limits:
        for index in range(3):
            if index == 1 and budget is not None:
                limits.enter_context(limited_memory(device, budget))
            torch.accelerator.reset_peak_memory_stats(device)
            with ExitStack() as step:
                if found.session is not None:
                    step.enter_context(found.session)
                optimizer.zero_grad()
                for _ in range(2):
                    loss = model(torch.randn(tokens, WIDTH).to(device).requires_grad_()).square().mean()
                    loss.backward()
                    found.left.append(loss.detach().cpu())
                    del loss
                optimizer.step()
            found.peaks.append(memory_stats(device).peak_bytes)
    named = [one for parameter in model.parameters() for one in (parameter, parameter.grad) if one is not None]
    found.left += [getattr(one, "_local_tensor", one).detach().cpu().clone() for one in named]
    found.left.append(torch.get_rng_state())
    if found.session is not None:
        found.policies = found.session._policies()
    return found


def both(rank: int, by_hand: bool, share: float, tokens: int) -> tuple[Trained, Trained, int]:
    """A rank's training without a plan and with one, in a share of what the first took."""
    dist.init_process_group("sim")
    device = torch.device("sim", rank)
    free = trained(device, by_hand, tokens, None)
    budget = int(share * max(free.peaks))
    kept = trained(device, by_hand, tokens, budget)
    dist.barrier()
    return free, kept, budget


if __name__ == "__main__":
    import sys

    prepared("sim")
    for by_hand in (False, True):
        for share in map(float, sys.argv[1:]):
            for free, kept, budget in run_ranks(
                partial(both, by_hand=by_hand, share=share, tokens=2048), 2, hardware=HARDWARE, races="raise"
            ).values:
                eq = all(torch.equal(a, b) for a, b in zip(free.left, kept.left, strict=True))
                works = [p.work for p in kept.policies]
                inw = [d for w in works for ds in w.in_waits.values() for d in ds]
                r = kept.report
                print(
                    by_hand,
                    share,
                    eq,
                    kept.peaks,
                    budget,
                    r.predicted_peak_bytes,
                    sum(len(d.nodes) for d in inw if isinstance(d, Deed) and d.does == "replay"),
                    sum(isinstance(d, Move) for d in inw),
                    "ahead",
                    r.ahead,
                    "out",
                    r.swapped_out,
                    r.swapped_in,
                    r.refused,
                    r.postponed,
                    r.replanned,
                    "pred",
                    r.predicted_pass_us,
                    r.pass_us,
                )
