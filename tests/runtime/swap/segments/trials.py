"""Runs a program on segments, plainly, in a session, or under a plan, and tells what its memory did."""

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from runtime.device import (
    CachingAllocator,
    clock,
    limited_memory,
    memory_stats,
    reset_peak_memory,
    sim_hardware,
    use_sim,
)
from runtime.profile import profile_step
from runtime.swap import SwapExecutor, session
from runtime.swap.stages import Stage
from solvers.ir.errors import BayplanError
from solvers.planner import planner
from solvers.timeline.segments import most_needed
from tests.runtime.swap.segments.larger import SHAPES_ONLY, WITH_BYTES
from tests.runtime.swap.segments.others import OTHERS_BY_SHAPES, OTHERS_WITH_BYTES
from tests.runtime.swap.segments.programs import PROGRAMS, Trained

LATE = 4
"""So many steps at the end, when policies are tried and chosen, are to pass without a retry."""
FRACTIONS = (0.75, 0.6, 0.45)
STEPS = 20
CAPACITY = 64 << 30
BY_SHAPES = SHAPES_ONLY | OTHERS_BY_SHAPES
EVERY = PROGRAMS | WITH_BYTES | OTHERS_WITH_BYTES | BY_SHAPES
Technique = Literal["session", "plan"]


@dataclass(frozen=True)
class Trial:
    """One program under one budget. Bytes; `refused` says why it ended before its last step, or is empty.

    `least_bytes` is what the step's most demanding operator needs at once (`solvers.timeline.segments.most_needed`):
    below it no policy can keep a budget. Retries are those of all steps, `warm_retries` those after the `warm_up` steps
    (of a session those of its stage WarmUp, of a plan those until the profile is made), `late_retries` those of the
    last four, when everything was seen before, and `late_returns` how many segments or pages went back to the driver
    then. `used_bytes` is the most that tensors took then: what lacks to the budget is headroom. `slower` is the time of
    a step then, as a multiple of the plain one.
    """

    program: str
    technique: Technique
    fraction: float
    expandable: bool
    plain_allocated_bytes: int
    plain_reserved_bytes: int
    budget_bytes: int
    least_bytes: int
    reserved_bytes: int
    ooms: int
    retries: int
    warm_up: int
    warm_retries: int
    late_retries: int
    late_returns: int
    used_bytes: int
    slower: float
    equal: bool
    refused: str

    @property
    def headroom(self) -> float:
        """The share of the budget that tensors left unused at their peak."""
        return 1 - self.used_bytes / self.budget_bytes

    @property
    def kept(self) -> bool:
        """Whether the budget was kept as a GPU would ask for it."""
        return not self.refused and self.equal and self.late_retries == 0 and self.reserved_bytes <= self.budget_bytes

    @property
    def calm(self) -> bool:
        """Whether it was kept without a retry after warm-up."""
        return self.kept and self.warm_retries == 0

    @property
    def infeasible(self) -> bool:
        """Whether it was refused, and rightly: the budget is less than one operator needs."""
        return bool(self.refused) and self.budget_bytes < self.least_bytes


@dataclass(frozen=True)
class Plain:
    """The run without a budget."""

    losses: list[torch.Tensor]
    allocated_bytes: int
    reserved_bytes: int
    step_us: float
    least_bytes: int


def ready(program: str, expandable: bool) -> torch.device:
    """The device with nothing on it and nothing cached."""
    gc.collect()
    allocator = CachingAllocator(expandable_segments=expandable)
    return use_sim(capacity_bytes=CAPACITY, allocator=allocator, shapes_only=program in BY_SHAPES).device


def plain(program: str, expandable: bool) -> Plain:
    device = ready(program, expandable)
    trained = EVERY[program](device)
    losses = [trained.step().cpu() for _ in range(STEPS - LATE)]
    stats, late = memory_stats(device), _Late(device)
    losses += [trained.step().cpu() for _ in range(LATE)]
    step_us = late.counts()[2]
    graph = profile_step(trained.step, device, warmup=0)
    return Plain(losses, stats.peak_bytes, stats.reserved_peak_bytes, step_us, most_needed(graph).bytes)


Ran = tuple[torch.Tensor, bool, int]
"""The loss of a step, whether the next one belongs to the warm-up, and the most reserved so far, where it is known."""


def in_session(trained: Trained, device: torch.device, budget: int) -> Iterator[Ran]:
    with session(budget, device=device) as swapping:
        for _ in range(STEPS):
            loss, report = trained.step(), swapping.report()
            yield loss, report.stage == Stage.WARM_UP.value, report.reserved_peak_bytes or 0


def under_plan(trained: Trained, device: torch.device, budget: int) -> Iterator[Ran]:
    """The first step is measured without a budget: what it cached is given back before the others."""
    losses: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        losses.append(trained.step())
        return losses[-1]

    graph = profile_step(step, device, model=trained.model, optimizer=trained.optimizer)
    yield from ((loss, number + 1 < len(losses), 0) for number, loss in enumerate(losses))
    plan = planner("greedy-swap")(graph, sim_hardware(), budget).plan
    assert plan is not None
    torch.accelerator.empty_cache()
    reset_peak_memory(device)
    executor = SwapExecutor(plan, graph)
    with limited_memory(device, budget):
        for _ in range(STEPS - len(losses)):
            yield executor.run(step).value, False, 0


TECHNIQUES: dict[Technique, Callable[[Trained, torch.device, int], Iterator[Ran]]] = {
    "session": in_session,
    "plan": under_plan,
}


class _Late:
    """What the last steps did to memory and time, from when it is made."""

    def __init__(self, device: torch.device) -> None:
        reset_peak_memory(device)
        self._device = device
        self._clock = clock(device)
        self._retries, self._returns, self._began = memory_stats(device).retries, returns(device), self._clock()

    def counts(self) -> tuple[int, int, float]:
        """Retries, returns to the driver, and microseconds of a step."""
        taken = self._clock() - self._began
        retries = memory_stats(self._device).retries - self._retries
        return retries, returns(self._device) - self._returns, taken / LATE / 1000


def returns(device: torch.device) -> int:
    """How often the allocator has given a segment, or pages, back to the driver."""
    return int(torch.accelerator.memory_stats(device)["num_device_free"])


def attempt(program: str, technique: Technique, fraction: float, expandable: bool, without: Plain) -> Trial:
    """One trial; the budget is that share of the plain run's peak of allocated bytes."""
    device = ready(program, expandable)
    budget = int(fraction * without.allocated_bytes)
    trained = EVERY[program](device)
    losses: list[torch.Tensor] = []
    refused, late = "", None
    stats, counts = memory_stats(device), (0, 0, 0.0)
    warm_up = warm_retries = reserved = 0
    try:
        for loss, warming, told in TECHNIQUES[technique](trained, device, budget):
            losses.append(loss.cpu())
            reserved = max(reserved, told)
            if warming or len(losses) == 1:
                warm_up, warm_retries = len(losses) + warming, memory_stats(device).retries
            if len(losses) == STEPS - LATE:
                late = _Late(device)
            stats = memory_stats(device)
            if len(losses) == STEPS and late is not None:
                counts = late.counts()
    except (torch.OutOfMemoryError, BayplanError) as error:
        refused = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
        stats = memory_stats(device)
    equal = all(torch.equal(mine, right) for mine, right in zip(losses, without.losses, strict=False))
    return Trial(
        program=program,
        technique=technique,
        fraction=fraction,
        expandable=expandable,
        plain_allocated_bytes=without.allocated_bytes,
        plain_reserved_bytes=without.reserved_bytes,
        budget_bytes=budget,
        least_bytes=without.least_bytes,
        reserved_bytes=max(stats.reserved_peak_bytes, reserved),
        used_bytes=stats.peak_bytes,
        ooms=stats.ooms,
        retries=stats.retries,
        warm_up=warm_up,
        warm_retries=stats.retries - warm_retries,
        late_retries=counts[0],
        late_returns=counts[1],
        slower=counts[2] / without.step_us,
        equal=equal,
        refused=refused,
    )


def trials(
    programs: Iterable[str] = PROGRAMS, techniques: Iterable[Technique] = ("session", "plan")
) -> Iterator[Trial]:
    """Every program under every budget, with and without expandable segments."""
    for program in programs:
        for expandable in (False, True):
            without = plain(program, expandable)
            for technique in techniques:
                for fraction in FRACTIONS:
                    yield attempt(program, technique, fraction, expandable, without)


HEAD = (
    "| program | technique | budget | expandable | plain: allocated, reserved (MiB) | budget, least (MiB) "
    "| reserved (MiB) "
    "| headroom (%) | ooms | retries: all, after warm-up (steps), late | returns, late | x plain | equal | outcome |\n"
    "|---|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|"
)


def line(row: Trial) -> str:
    """A trial as a line of Markdown."""
    mib = {name: f"{size / 2**20:.1f}" for name, size in asdict(row).items() if name.endswith("_bytes")}
    outcome = "kept" if row.kept else row.refused.partition(":")[0] or "over"
    if row.infeasible:
        outcome = f"infeasible: least {mib['least_bytes']} MiB"
    equal = "shapes" if row.program in BY_SHAPES else "yes" if row.equal else "no"
    return (
        f"| {row.program} | {row.technique} | {row.fraction} | {'yes' if row.expandable else 'no'} "
        f"| {mib['plain_allocated_bytes']}, {mib['plain_reserved_bytes']} | {mib['budget_bytes']}, "
        f"{mib['least_bytes']} | {mib['reserved_bytes']} | {100 * row.headroom:.1f} | {row.ooms} "
        f"| {row.retries}, {row.warm_retries} ({row.warm_up}), {row.late_retries} "
        f"| {row.late_returns} | {row.slower:.2f} | {equal} | {outcome} |"
    )


def table(rows: Iterable[Trial]) -> str:
    """Markdown, one line for each trial."""
    return "\n".join([HEAD, *map(line, rows)])
