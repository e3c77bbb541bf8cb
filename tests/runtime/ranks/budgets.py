"""Programs of ranks that train, each rank within a budget of its own or without, and what they leave behind."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from experiments.models import GptShape
from experiments.ranks.programs import Job, Trained, train
from runtime.device.native import core
from runtime.ranks import RankRun, run_ranks
from runtime.swap import IterationSummary, SessionReport, session
from runtime.swap.stages import StageSettings
from tests.runtime.ranks.cluster import CLUSTER

SHAPE = GptShape(layers=4, width=32, heads=4, context=64, batch=8, seed=3)
STEPS = 10
MICROBATCHES = 4
SOON = StageSettings(warm_up_iterations=0, policies=2)


@dataclass
class Rank:
    """What a rank trained, the most memory that it took, and what its session says, if it had one."""

    trained: Trained
    peak_bytes: int
    report: SessionReport | None
    iterations: list[IterationSummary]


def job(style: str, ranks: int, steps: int = STEPS) -> Job:
    """So many steps of a small GPT."""
    return Job(style, SHAPE, ranks, steps, MICROBATCHES)


def train_within(whole: Job, rank: int, budget: int | None, **options: Any) -> Rank:
    """The rank's part, from building the model on, within its budget if it has one; the world has been made."""
    device = torch.device("sim", rank)
    torch.accelerator.reset_peak_memory_stats(device)
    iterations: list[IterationSummary] = []
    limited = budget is not None
    within = (
        session(budget, device=device, stages=SOON, watch=iterations.append, **options) if limited else nullcontext()
    )
    with within as following:
        trained = train(whole, rank, device)
        peak_bytes = torch.accelerator.max_memory_allocated(device)
        report = None if following is None else following.report()
    return Rank(trained, peak_bytes, report, iterations)


def ran(style: str, budgets: Sequence[int | None], **options: Any) -> RankRun[Rank]:
    """A rank for each budget, all in this process; races are counted, not raised."""
    whole = job(style, len(budgets))

    def program(rank: int) -> Rank:
        dist.init_process_group("sim")
        found = train_within(whole, rank, budgets[rank])
        dist.destroy_process_group()
        return found

    run = run_ranks(program, len(budgets), **{"hardware": CLUSTER, "races": "record"} | options)
    assert core.swapped_out_storages() == 0
    assert not core.swap_guard_is_on()
    assert core.host_stats().held_bytes == 0  # each rank's last session has given its own back
    return run


@cache
def plain(style: str, ranks: int) -> RankRun[Rank]:
    """The same without sessions."""
    return ran(style, [None] * ranks)


def shares(style: str, parts: Sequence[float | None]) -> list[int | None]:
    """Budgets as parts of what each rank takes without one."""
    peaks = [rank.peak_bytes for rank in plain(style, len(parts)).values]
    return [None if part is None else int(part * peak) for part, peak in zip(parts, peaks, strict=True)]


def same(mine: Trained, others: Trained) -> bool:
    """Whether losses, gradients and parameters are, bit for bit."""
    tensors = [
        torch.equal(getattr(mine, kind)[name], tensor)
        for kind in ("gradients", "parameters")
        for name, tensor in getattr(others, kind).items()
    ]
    return mine.losses == others.losses and len(tensors) > 0 and all(tensors)
