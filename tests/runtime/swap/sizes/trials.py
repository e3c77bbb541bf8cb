"""Runs a loop whose sizes vary without a budget and within one, and tells who carried what left the device."""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from msgspec.structs import replace

from runtime.device import clock, memory_stats, reset_peak_memory, sim_hardware, use_sim
from runtime.swap import SessionReport, session
from runtime.swap.report import IterationSummary, SessionCounts
from solvers.ir.errors import BayplanError
from tests.runtime.swap.models.program import Record, record
from tests.runtime.swap.sizes.programs import PROGRAMS

STEPS, LATE, SHARE = 70, 40, 0.6
"""So many steps, of which the last ones count, within that share of the peak."""


@dataclass(frozen=True)
class Plain:
    """The run without a budget."""

    left: Record
    peak_bytes: int
    late_us: float


@dataclass(frozen=True)
class Trial:
    """One loop within a budget; counts, and the time over that without a budget, are those of the last steps."""

    program: str
    budget_bytes: int
    peak_bytes: int
    counts: SessionCounts
    slower: float
    equal: bool
    report: SessionReport | None
    refused: str = ""

    @property
    def in_time(self) -> float | None:
        """The share of what came back that was there when it was used; None where nothing came back."""
        back = self.counts.in_time + self.counts.fallbacks
        return self.counts.in_time / back if back else None

    @property
    def planned(self) -> float | None:
        """The share of the bytes that left which policies sent away; None where none left."""
        out = self.counts.out_bytes
        return 1 - self.counts.passive_bytes / out if out else None


def ready(launches: bool) -> torch.device:
    """The device with nothing on it; without launches kernels alone take time, as where they are long."""
    gc.collect()
    use_sim()
    hardware = sim_hardware()
    own = replace(hardware.devices[0], launch_us=0.0)
    return use_sim(None if launches else replace(hardware, devices=(own, *hardware.devices[1:]))).device


@cache
def plain(program: str, launches: bool) -> Plain:
    """Without a budget."""
    device = ready(launches)
    running = PROGRAMS[program](device)
    reset_peak_memory(device)
    losses = [running.step().cpu() for _ in range(STEPS - LATE)]
    now = clock(device)
    began = now()
    losses += [running.step().cpu() for _ in range(LATE)]
    late_us = (now() - began) / 1000
    return Plain(record(running, losses), memory_stats(device).peak_bytes, late_us)


def attempt(program: str, launches: bool = True, share: float = SHARE) -> Trial:
    """The same within a share of the peak."""
    without = plain(program, launches)
    budget = int(share * without.peak_bytes)
    device = ready(launches)
    running = PROGRAMS[program](device)
    reset_peak_memory(device)
    seen: list[IterationSummary] = []
    losses, late_us, report = list[torch.Tensor](), float("nan"), None
    try:
        with session(budget, device=device, watch=seen.append) as swapping:
            losses = [running.step().cpu() for _ in range(STEPS - LATE)]
            now = clock(device)
            began = now()
            losses += [running.step().cpu() for _ in range(LATE)]
            late_us = (now() - began) / 1000
            report = swapping.report()
        refused = ""
    except (torch.OutOfMemoryError, BayplanError) as error:
        refused = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
    equal = not refused and not record(running, losses).differences(without.left)
    counts = sum((ran.counts for ran in seen[-LATE:]), SessionCounts())
    return Trial(
        program=program,
        budget_bytes=budget,
        peak_bytes=memory_stats(device).peak_bytes,
        counts=counts,
        slower=late_us / without.late_us,
        equal=equal,
        report=report,
        refused=refused,
    )


def trials(programs: Iterable[str] = PROGRAMS, launches: bool = True) -> Iterator[Trial]:
    """Each program within its budget."""
    for program in programs:
        yield attempt(program, launches)


HEAD = (
    "| program | budget (MiB) | in time, on demand | in time (%) | passive | planned (% of bytes) | out (MiB a step) "
    "| x plain | equal | cost as reported |\n|---|---:|---:|---:|---:|---:|---:|---:|---|---|"
)


def percent(share: float | None) -> str:
    """As a whole number."""
    return "–" if share is None else f"{100 * share:.0f}"


def line(row: Trial) -> str:
    """A trial as a line of Markdown."""
    if row.refused or row.report is None:
        return f"| {row.program} | {row.budget_bytes / 2**20:.1f} | {row.refused} | | | | | | | |"
    counts, cost = row.counts, row.report.cost
    over = "" if row.peak_bytes <= row.budget_bytes else ", OVER BUDGET"
    return (
        f"| {row.program} | {row.budget_bytes / 2**20:.1f}{over} | {counts.in_time}, {counts.fallbacks} "
        f"| {percent(row.in_time)} | {counts.passive} | {percent(row.planned)} "
        f"| {counts.out_bytes / LATE / 2**20:.2f} | {row.slower:.3f} | {'yes' if row.equal else 'NO'} "
        f"| {'–' if cost is None else f'{cost.overhead:+.1%} ({cost.how})'} |"
    )
