"""Planned steps on segments: every program under every budget, and GPTs of several GiB by their shapes alone.

`python -m tests.runtime.swap.segments.plans [PROGRAM …]` prints both tables, line by line; minutes.
"""

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from runtime.device import CachingAllocator, limited_memory, memory_stats, reset_peak_memory, sim_hardware, use_sim
from runtime.profile import profile_step
from runtime.swap import SwapExecutor, gather
from solvers.ir.errors import BayplanError, InfeasibleBudget
from solvers.ir.graph import OpGraph
from solvers.planner import planner
from solvers.timeline import promised_peak_bytes
from tests.runtime.swap.segments.planned_programs import LARGER, WIDE
from tests.runtime.swap.segments.programs import PROGRAMS, Build, Trained

FRACTIONS = (0.75, 0.6, 0.45)
PROFILED, WARM, LATE = 3, 2, 3
"""Steps until the profile is made, then the first ones under the plan, then those that must pass without a retry."""
EVERY: dict[str, Build] = {**PROGRAMS, **LARGER}
MIB = 1 << 20


@dataclass(frozen=True)
class Plain:
    """The run without a budget: losses, parameters after it, peaks in bytes."""

    losses: list[torch.Tensor]
    parameters: list[torch.Tensor]
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class Planned:
    """One program under a plan. Bytes; `refused` says why no step began, `failed` why one ended, or both are empty.

    `planned_bytes` is the plan's peak of tensors; `least_bytes` the least limit that a refusal names. `equal` compares
    losses and parameters with the plain run's, None where there are no numbers.
    """

    program: str
    fraction: float
    expandable: bool
    plain: Plain
    budget_bytes: int
    planned_bytes: int = 0
    reserved_bytes: int = 0
    ooms: int = 0
    retries: int = 0
    late_retries: int = 0
    equal: bool | None = None
    least_bytes: int | None = None
    refused: str = ""
    failed: str = ""

    @property
    def kept(self) -> bool:
        """Whether the budget was kept as a GPU would ask for it."""
        told = self.refused or self.failed or self.ooms or self.late_retries or self.equal is False
        return not told and self.reserved_bytes <= self.budget_bytes

    @property
    def ends_well(self) -> bool:
        """Kept, or refused before a step begins because nothing that was found fits."""
        return self.kept or (bool(self.refused) and (self.least_bytes or 0) > self.budget_bytes)

    @property
    def left_bytes(self) -> int:
        """What the plan's tensors leave of the budget to segments."""
        return self.budget_bytes - self.planned_bytes


def ready(expandable: bool, shapes_only: bool = False) -> torch.device:
    """The device with nothing on it and nothing cached."""
    gc.collect()
    allocator = CachingAllocator(expandable_segments=expandable)
    capacity = 1 << 40 if shapes_only else None
    return use_sim(allocator=allocator, shapes_only=shapes_only, capacity_bytes=capacity).device


def parameters_of(trained: Trained) -> list[torch.Tensor]:
    return [one.detach().cpu() for one in trained.model.parameters()]


def plain(build: Build, expandable: bool) -> Plain:
    device = ready(expandable)
    trained = build(device)
    losses = [trained.step().cpu() for _ in range(PROFILED + WARM + LATE)]
    stats = memory_stats(device)
    return Plain(losses, parameters_of(trained), stats.peak_bytes, stats.reserved_peak_bytes)


def profiled(trained: Trained, device: torch.device, losses: list[torch.Tensor]) -> OpGraph:
    """The graph of the third step, after what stays was gathered; the cache that they left is given back."""

    def step() -> None:
        losses.append(trained.step())

    step()
    gather(trained.model, trained.optimizer)
    graph = profile_step(step, device, model=trained.model, optimizer=trained.optimizer, warmup=PROFILED - 2)
    torch.accelerator.empty_cache()
    reset_peak_memory(device)
    return graph


def planned(name: str, fraction: float, expandable: bool, without: Plain) -> Planned:
    """A program under the heuristic's plan for that share of the plain run's peak of allocated bytes."""
    device = ready(expandable)
    trained = EVERY[name](device)
    losses: list[torch.Tensor] = []
    graph = profiled(trained, device, losses)
    blank = Planned(name, fraction, expandable, without, int(fraction * without.allocated_bytes))
    done = executed(trained, device, graph, blank, losses)
    right = list(zip([loss.cpu() for loss in losses], without.losses, strict=False))
    right += [] if done.refused or done.failed else list(zip(parameters_of(trained), without.parameters, strict=True))
    return replaced(done, equal=all(torch.equal(mine, theirs) for mine, theirs in right))


def planned_by_shapes(name: str, fraction: float, expandable: bool) -> Planned:
    """A GPT of `WIDE` on a device without bytes."""
    device = ready(expandable, shapes_only=True)
    made = WIDE[name].build(device)
    trained = Trained(made.model, made.optimizer, made.step)
    graph = profiled(trained, device, [])
    peak = max(graph.memory_bytes)
    return executed(
        trained, device, graph, Planned(name, fraction, expandable, Plain([], [], peak, 0), int(fraction * peak)), []
    )


def executed(
    trained: Trained, device: torch.device, graph: OpGraph, blank: Planned, losses: list[torch.Tensor]
) -> Planned:
    """Plan, and run some steps within the budget."""
    try:
        plan = planner("greedy-swap")(graph, sim_hardware(), blank.budget_bytes).plan
    except InfeasibleBudget as error:
        return replaced(blank, refused=str(error), least_bytes=error.least_budget_bytes)
    assert plan is not None
    sizes = {tensor.id: graph.block_bytes(tensor) for tensor in graph.tensors}
    executor = SwapExecutor(plan, graph, trace=False)
    failed, warm = "", memory_stats(device).retries
    before = warm
    try:
        with limited_memory(device, blank.budget_bytes):
            for number in range(WARM + LATE):
                losses.append(executor.run(trained.step).value)
                warm = memory_stats(device).retries if number < WARM else warm
    except (torch.OutOfMemoryError, BayplanError) as error:
        failed = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
    stats = memory_stats(device)
    return replaced(
        blank,
        planned_bytes=promised_peak_bytes(graph.memory_bytes, sizes, plan),
        reserved_bytes=stats.reserved_peak_bytes,
        ooms=stats.ooms,
        retries=stats.retries - before,
        late_retries=stats.retries - warm,
        failed=failed,
    )


def replaced(row: Planned, **fields: object) -> Planned:
    return Planned(**{**row.__dict__, **fields})


def trials(names: list[str]) -> Iterator[Planned]:
    """Every program under every budget, on both kinds of segments; the GPTs of `WIDE` by their shapes."""
    for name in names:
        for expandable in (False, True):
            if name in WIDE:
                yield from (planned_by_shapes(name, fraction, expandable) for fraction in FRACTIONS)
            else:
                without = plain(EVERY[name], expandable)
                yield from (planned(name, fraction, expandable, without) for fraction in FRACTIONS)


HEAD = (
    "| program | budget | expandable | plain: allocated (MiB) | budget (MiB) | left to segments (MiB) | reserved (MiB) "
    "| retries, late | equal | outcome |\n|---|---:|---|---:|---:|---:|---:|---:|---|---|"
)


def line(row: Planned) -> str:
    """A trial as a line of Markdown."""
    outcome = "kept" if row.kept else row.failed.partition(":")[0] or "over"
    if row.refused:
        outcome = f"refused: needs {(row.least_bytes or 0) / MIB:.0f} MiB"
    left = "" if row.refused else f"{row.left_bytes / MIB:.1f} ({100 * row.left_bytes / row.budget_bytes:.1f} %)"
    equal = {None: "", True: "yes", False: "no"}[row.equal]
    return (
        f"| {row.program} | {row.fraction} | {'yes' if row.expandable else 'no'} "
        f"| {row.plain.allocated_bytes / MIB:.1f} | {row.budget_bytes / MIB:.1f} | {left} "
        f"| {'' if row.refused else f'{row.reserved_bytes / MIB:.1f}'} "
        f"| {'' if row.refused else f'{row.retries}, {row.late_retries}'} | {equal} | {outcome} |"
    )


def main() -> None:
    """Print the table."""
    print(HEAD, flush=True)
    rows = list[Planned]()
    for row in trials(sys.argv[1:] or [*EVERY, *WIDE]):
        rows.append(row)
        print(line(row), flush=True)
    refused = sum(bool(row.refused) for row in rows)
    print(f"\nkept: {sum(row.kept for row in rows)} of {len(rows)}; refused before a step began: {refused}")


if __name__ == "__main__":
    main()
