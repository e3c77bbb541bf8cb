"""`python -m experiments.joint.on_ranks`: joint plans carried out under tensor parallelism, beside what was predicted.

A GPT is cut over simulated devices by DTensor; each rank trains a few steps without a plan, then under joint plans with
shares of the memory that it took. Executed by shapes on sim, accesses race-checked. A pass begins with the first block
and ends with its backward pass; `over base` is over the problem's pass with everything stored.
"""

import gc
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import click
import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from experiments.command_line import run
from experiments.hardware import read_hardware
from experiments.models import Gpt, GptShape
from experiments.ranks.models import build
from runtime.device import memory_stats
from runtime.ranks import run_ranks
from runtime.recompute import RecomputeReport, RecomputeSession, plan
from runtime.recompute.moves import Move
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.hardware import HOST, Hardware
from solvers.ir.solution import Limits

STEPS = 3
HEAD = (
    "share of the peak",
    "pass (µs)",
    "predicted",
    "error",
    "over base",
    "peak of budget",
    "in waits: moves, replays",
)


@dataclass(frozen=True)
class Asked:
    """A model, whose budget is a share of `peak_bytes` (None: train without a plan), and who plans."""

    shape: GptShape
    ranks: int
    solver: str
    limits: Limits
    share: float | None = None
    peak_bytes: int = 0


@dataclass(frozen=True)
class Done:
    """What a rank's steps did: the most bytes; with a plan its report, its base in µs, and what its waits do."""

    peak_bytes: int
    report: RecomputeReport | None = None
    base_us: int = 0
    moves: int = 0
    replays: int = 0


def cluster(slower: int) -> Hardware:
    """`sim-cluster`, the links between its devices so many times slower; those to the host stay."""
    hardware = read_hardware("sim-cluster")
    links = (
        link if HOST in (link.a, link.b) else replace(link, bytes_per_s=link.bytes_per_s // slower)
        for link in hardware.links
    )
    return replace(hardware, links=tuple(links))


def _model(asked: Asked, device: torch.device) -> Gpt:
    """What a rank has of it."""
    model = build("tp", asked.shape).to(device)
    mesh = init_device_mesh(device.type, (asked.ranks,))
    columns = {name: ColwiseParallel() for name in ("queries", "keys", "values", "widen")}
    for block in model.blocks:
        parallelize_module(block, mesh, {**columns, "projection": RowwiseParallel(), "narrow": RowwiseParallel()})
    return model


def train(asked: Asked, rank: int) -> Done:
    """One rank's steps."""
    dist.init_process_group("sim")
    device = torch.device("sim", rank)
    model = _model(asked, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    session = None
    if asked.share is not None:
        budget = int(asked.share * asked.peak_bytes)
        session = plan(model, budget=budget, solver=asked.solver, limits=asked.limits)
    for _ in range(STEPS):
        torch.accelerator.reset_peak_memory_stats(device)
        with nullcontext() if session is None else session:
            words = torch.zeros(asked.shape.batch, asked.shape.context, dtype=torch.int64).to(device)
            optimizer.zero_grad()
            model(words, words).backward()
            optimizer.step()
            peak = memory_stats(device).peak_bytes
    dist.barrier()
    return Done(peak) if session is None else _done(session, peak)


def _done(session: RecomputeSession, peak: int) -> Done:
    works = [policy.work for policy in session.plans.policies() if policy.work is not None]
    waits = [one for work in works for deeds in work.in_waits.values() for one in deeds]
    moves = sum(isinstance(one, Move) for one in waits)
    solution = session.solution
    assert solution is not None
    return Done(peak, session.report(), solution.base or 0, moves, len(waits) - moves)


def on_ranks(asked: Asked, hardware: Hardware) -> list[Done]:
    """By rank; nothing of the training is left."""
    gc.collect()
    return run_ranks(partial(train, asked), asked.ranks, hardware=hardware, shapes_only=True, races="raise").values


def row(share: float, done: Sequence[Done]) -> tuple[float, list[str]]:
    """How far off the worst rank's prediction is, and a row of the table."""
    worst = 0.0
    for one in done:
        report = one.report
        assert report is not None and report.pass_us is not None and report.predicted_pass_us is not None
        worst = max(worst, report.predicted_pass_us / report.pass_us - 1, key=abs)
    report = done[0].report
    assert report is not None and report.pass_us is not None
    peak = max(one.report.peak_bytes / one.report.budget_bytes for one in done if one.report is not None)
    return worst, [
        f"{share:.0%}", f"{report.pass_us:,.0f}", f"{report.predicted_pass_us:,}", f"{worst:+.4%}",
        f"{report.pass_us / done[0].base_us:.4f} ×", f"{peak:.2%}", f"{done[0].moves}, {done[0].replays}",
    ]  # fmt: skip


@click.command("on_ranks")
@click.option("--ranks", type=click.IntRange(2, 8), default=2, show_default=True)
@click.option("--layers", type=click.IntRange(2), default=6, show_default=True)
@click.option("--dropout", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True)
@click.option("--share", "shares", type=click.FloatRange(0, 1, min_open=True), multiple=True, default=(0.8, 0.6, 0.45))
@click.option("--slower", type=click.IntRange(1), default=1, show_default=True, help="Links between devices.")
@click.option("--solver", type=click.Choice(["joint", "greedy-joint"]), default="joint", show_default=True)
@click.option("--work", type=click.FloatRange(0, min_open=True), default=0.02, show_default=True, help="Of the solver.")
def command(
    ranks: int, layers: int, dropout: float, shares: tuple[float, ...], slower: int, solver: str, work: float
) -> int:
    """Print a table: a row for each share of the memory that ranks take without a plan."""
    shape = GptShape(layers=layers, width=256, heads=8, context=256, batch=16, dropout=dropout)
    free, hardware = Asked(shape, ranks, solver, Limits(work=work)), cluster(slower)
    peak = max(one.peak_bytes for one in on_ranks(free, hardware))
    click.echo(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    errors = []
    for share in shares:
        asked = Asked(shape, ranks, solver, free.limits, share, peak)
        try:
            worst, cells = row(share, on_ranks(asked, hardware))
        except InfeasibleBudget as error:
            click.echo(f"| {share:.0%} | refused: {error} |")
            continue
        errors.append(worst)
        click.echo(f"| {' | '.join(cells)} |")
    if errors:
        click.echo(f"\nworst error of a predicted pass: {max(errors, key=abs):+.4%}")
    return 0


if __name__ == "__main__":
    sys.exit(run(command, "joint.on_ranks", sys.argv[1:]))
