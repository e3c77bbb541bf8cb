"""Joint plans on ranks whose blocks communicate: one plan for all, moves and recomputation inside their collectives."""

import math
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from experiments.joint.on_ranks import cluster
from runtime.device import limited_memory, memory_stats
from runtime.ranks import run_ranks
from runtime.recompute import RecomputeReport, plan
from runtime.recompute.moves import Move
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.together import Together, hardest, together_with
from runtime.recompute.work import Deed
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.joint import JointOp, JointProblem
from solvers.ir.solution import Limits
from solvers.ir.swap import SwapLink
from solvers.planner import AnySolver
from tests.accelerators import prepared
from tests.runtime.recompute.test_joint import Anything
from tests.runtime.recompute.test_ranks import AllReduced, Copied

QUICK = Limits(time_s=math.inf, work=0.02)
WIDTH, TOKENS = 64, 512


class Split(nn.Module):
    """Layers whose hidden features two ranks share: by DTensor, or by hand with synchronous sums, as in Megatron-LM."""

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
        made = self.down(functional.gelu(functional.gelu(self.up(given))))
        summed = AllReduced.apply(made) if self.by_hand else made  # type: ignore[no-untyped-call]
        return hidden + functional.dropout(summed, 0.1)


@dataclass
class Trained:
    """What a rank has after some steps, on the CPU; `problem` and `policies` are those of its plan, if it had one."""

    left: list[Tensor]
    peaks: list[int]
    report: RecomputeReport | None = None
    problem: object = None
    policies: Sequence[BlockPolicy] = ()

    def equals(self, other: "Trained") -> bool:
        """Losses, gradients, parameters and the state of the random generator, bit by bit."""
        return all(torch.equal(*pair) for pair in zip(self.left, other.left, strict=True))

    @property
    def in_waits(self) -> list[Deed | Move]:
        """What is done while the program waits for collectives."""
        works = [policy.work for policy in self.policies]
        return [one for work in works if work is not None for deeds in work.in_waits.values() for one in deeds]


def trained(device: torch.device, by_hand: bool, budget: int | None, around: bool = False) -> Trained:
    """Three steps of two microbatches; with a budget the device has that from the second step on, and no byte more."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Split(by_hand) for _ in range(3))).to(device)
    if not by_hand:
        mesh = init_device_mesh(device.type, (2,))
        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    session = None if budget is None else plan(model, budget=budget, solver="joint", blocks=list(model), limits=QUICK)
    found = Trained([], [])
    with ExitStack() as limits:
        if session is not None and around:
            limits.enter_context(session)
        for index in range(3):
            if index == 1 and budget is not None:
                limits.enter_context(limited_memory(device, budget))
            torch.accelerator.reset_peak_memory_stats(device)
            with ExitStack() as step:
                if session is not None and not around:
                    step.enter_context(session)
                optimizer.zero_grad()
                for _ in range(2):
                    loss = model(torch.randn(TOKENS, WIDTH).to(device).requires_grad_()).square().mean()
                    loss.backward()
                    found.left.append(loss.detach().cpu())
                    del loss
                optimizer.step()
                found.peaks.append(memory_stats(device).peak_bytes)
    named = [one for parameter in model.parameters() for one in (parameter, parameter.grad) if one is not None]
    found.left += [getattr(one, "_local_tensor", one).detach().cpu().clone() for one in named]
    found.left.append(torch.get_rng_state())
    if session is not None:
        found.report, found.problem, found.policies = session.report(), session.problem, session.plans.policies()
    return found


def both(rank: int, by_hand: bool, share: float) -> tuple[Trained, Trained, int]:
    """A rank's training without a plan and with one, in a share of what the first took on any rank."""
    dist.init_process_group("sim")
    device = torch.device("sim", rank)
    free = trained(device, by_hand, None)
    peaks: list[int] = [0, 0]
    dist.all_gather_object(peaks, max(free.peaks))
    kept = trained(device, by_hand, int(share * max(peaks)), around=by_hand)
    dist.barrier()
    return free, kept, int(share * max(peaks))


@pytest.mark.parametrize(
    ("solver", "by_hand", "share"), [(None, False, 0.65), (None, True, 0.65), (Anything(2), True, 1.1)]
)
def test_two_ranks_train_alike_by_one_plan(
    solver: AnySolver | None, by_hand: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By plans that move and run again beside long sums, and by a random one; no accesses race."""
    prepared("sim")
    if solver is not None:
        monkeypatch.setattr(import_module("runtime.recompute.decisions"), "build_solver", lambda *_: solver)
    run = run_ranks(partial(both, by_hand=by_hand, share=share), 2, hardware=cluster(16), races="raise")
    first = run.values[0][1]
    for free, kept, budget in run.values:
        assert kept.equals(free)
        assert max(kept.peaks[1:]) <= budget
        assert kept.problem == first.problem and list(kept.policies) == list(first.policies)
        report = kept.report
        assert report is not None and report.swapped_out > 0
        assert (report.diverged, report.replanned, report.left_out, report.refused, report.postponed) == (0,) * 5
        assert max(report.peak_bytes, report.predicted_peak_bytes) <= budget
        both_in_waits = {Move} if solver is None and by_hand else {Deed, Move}  # with synchronous sums moves suffice
        assert {type(one) for one in kept.in_waits} >= both_in_waits
    assert not run.races


class Summed(nn.Module):
    """One sum over both ranks; `more` operators behind it."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.inner, self.more = nn.Linear(WIDTH, WIDTH), more

    def forward(self, hidden: Tensor) -> Tensor:
        """The same shape."""
        found: Tensor = AllReduced.apply(self.inner(hidden))  # type: ignore[no-untyped-call]
        for _ in range(self.more):
            found = found.sigmoid()
        return found.tanh()


def refused(rank: int) -> list[tuple[type[Exception], str]]:
    """What a rank's sessions say: of too small a budget, and of blocks that are other ones on rank 1."""
    dist.init_process_group("sim")
    told: list[tuple[type[Exception], str]] = []
    for budget, more in ((10_000, 0), (1 << 30, rank)):
        model = nn.Sequential(Summed(more), Summed(more)).to(torch.device("sim", rank))
        session = plan(model, budget=budget, solver="greedy-joint", blocks=list(model), limits=QUICK)
        for step in range(2):
            try:
                with session:
                    if step == 1:
                        with pytest.raises(InvalidInput, match="two steps, since ranks decide when the second begins"):
                            session.report()
                    model(torch.ones(32, WIDTH).to(torch.device("sim", rank)).requires_grad_()).sum().backward()
            except InvalidInput as error:
                told.append((type(error), str(error)))
    return told


def test_ranks_refuse_together() -> None:
    prepared("sim")
    first, second = run_ranks(refused, 2, hardware=cluster(1)).values
    assert first == second and [kind for kind, _ in first] == [InfeasibleBudget, InvalidInput]
    assert re.search(r"the budget is 10000 bytes, but any plan of these \d+ blocks takes at least \d+", first[0][1])
    assert "is aten::tanh on its rank 0 and aten::sigmoid on its rank 1, and a joint plan is one for all" in first[1][1]


def uneven(rank: int) -> list[bool]:
    """By pass, whether there is a plan; between the first step's microbatches a parameter changes on rank 0 only."""
    dist.init_process_group("sim")
    device = torch.device("sim", rank)
    model = nn.Sequential(Summed(1), Summed(1)).to(device)
    planned = list[bool]()
    with plan(model, budget=1 << 30, solver="greedy-joint", blocks=list(model), limits=QUICK) as session:
        for index in range(4):
            if index == 3:
                model.zero_grad()
            model(torch.ones(32, WIDTH).to(device).requires_grad_()).sum().backward()
            planned.append(session.solution is not None)
            if (rank, index) == (0, 1):
                with torch.no_grad():
                    model[0].inner.weight.mul_(0.5)  # type: ignore[union-attr, operator]
    return planned


def test_ranks_agree_when_the_first_step_is_over() -> None:
    prepared("sim")
    assert run_ranks(uneven, 2, hardware=cluster(1)).values == [[False, False, False, True]] * 2


def test_the_hardest_problem_is_as_hard_as_each() -> None:
    ops = [JointOp(name="op", time_us=time, output_bytes=9 - time, inputs=(), comm=False) for time in (3, 5)]
    links = [SwapLink(out_bytes_per_s=rate, in_bytes_per_s=9 - rate, latency_us=rate) for rate in (2, 4)]
    problems = [
        JointProblem(name="p", budget_bytes=40 + index, static_bytes=index, ops=(op,), link=link)
        for index, (op, link) in enumerate(zip(ops, links, strict=True))
    ]
    found = hardest(problems)
    assert found.ops == (replace(ops[0], time_us=5, output_bytes=6),)
    assert (found.budget_bytes, found.static_bytes) == (40, 1)
    assert found.link == SwapLink(out_bytes_per_s=2, in_bytes_per_s=5, latency_us=4)


def test_ranks_of_several_groups_are_refused() -> None:
    make: Any = dist.ProcessGroup  # its stub wants a store
    groups = [make(0, size) for size in (1, 2, 4)]
    assert together_with([]) is together_with(groups[:1]) is None
    assert together_with(groups[:2]) == Together(groups[1])
    with pytest.raises(InvalidInput, match="communicate in 2 groups, and a joint plan is one for the ranks of one"):
        together_with(groups[1:])
