"""Keeping, swapping and recomputing together, as `runtime.recompute.plan` does it: the program trained within it."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from experiments.fit.answer import MODELLED, Row
from experiments.fit.joint import FIRST, QUICK, WHAT
from experiments.fit.judge import Asked, Budget
from experiments.fit.recording import Recording
from experiments.fit.sessions import TIMED, UNIT, Trained
from experiments.models.own import OwnModel, TheirStep
from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.recompute import RecomputeSession, plan
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.hardware import Hardware
from solvers.timeline.segments import least_limit

STEPS = 6
"""Of a run: the first is measured, and segments judge three planned ones."""
TRIES = 3
"""Budgets that are tried between the least that a refusal names and one that was kept, where the former is not."""


@dataclass(frozen=True)
class Planned(Trained):
    """What steps within a plan took at most; `least_bytes`: the least budget that a refusal named."""

    allocated_bytes: int = 0
    least_bytes: int | None = None


Run = Callable[[int, int], Planned]
"""By budget, and the device's bytes."""


def executed_row(factory: str, asked: Asked, recording: Recording, budget: Budget) -> Row:
    """The row of both techniques for MODULE:FACTORY; what cannot be planned or run so says why."""
    name = QUICK.get(asked.solver, "joint")
    by = "by shapes alone" if recording.by_shapes else "with bytes"
    how = f"run within runtime.recompute.plan on a simulated device that ends at the budget, {by}; reserved {MODELLED}"
    blank = Row(technique="joint", what=WHAT, how=how, solver=name)
    train = partial(trained, factory, asked, budget.expandable, recording.by_shapes)
    run, quick = partial(train, name), partial(train, FIRST)
    try:
        first = run(budget.bytes, budget.bytes)
        if first.unknown is not None:
            return replace(blank, reason=f"cannot be told: {first.unknown}")
        in_bytes, least = _least(quick, budget.bytes, first, least_limit(recording.trace.events, budget.endless))
    except InvalidInput as error:
        return replace(blank, reason=f"no session can plan it: {error}")
    row = replace(
        blank,
        fits=first.kept,
        fits_allocated=None if in_bytes is None else in_bytes <= budget.bytes,
        asked=(name,) if least is None else tuple(dict.fromkeys((name, FIRST))),
        least_allocated_bytes=in_bytes,
        margin_allocated_bytes=None if in_bytes is None else budget.bytes - in_bytes,
        least_reserved_bytes=None if least is None else least.budget_bytes,
        margin_reserved_bytes=None if least is None else budget.bytes - least.budget_bytes,
        least_reserved_solver=None if least is None else FIRST,
        remarks=tuple(_remarks(first, least)),
    )
    shown = first if first.kept else least
    return row if shown is None else _told(row, shown, asked.hardware, name if first.kept else FIRST)


def _told(row: Row, shown: Planned, hardware: Hardware, solver: str) -> Row:
    return replace(
        row,
        solver=solver,
        allocated_bytes=shown.allocated_bytes,
        reserved_bytes=shown.reserved_bytes,
        retries=shown.retries,
        host_bytes=shown.host_bytes,
        step_us=shown.step_us,
        step_how=f"sim-executed, virtual time of {hardware.name}, mean of the last {TIMED} of {shown.steps} steps",
        plan_budget_bytes=shown.budget_bytes,
    )


def _remarks(first: Planned, least: Planned | None) -> Iterator[str]:
    if not first.kept:
        yield f"refused within {show_bytes(first.budget_bytes)}: {first.why_not}"
    if not first.kept and least is not None:
        yield f"peaks, host memory and step are those within {show_bytes(least.budget_bytes)}"
    if least is None:
        yield "least device: not known, as no budget that was tried was kept"
    else:
        yield f"least device: the least of the budgets tried, trained {least.steps} steps"
    if first.kept and first.ended is not None:
        yield f"the program ended after {first.steps} steps by itself ({first.ended}): it is judged by these"


def _least(run: Run, budget_bytes: int, first: Planned, plain_bytes: int) -> tuple[int | None, Planned | None]:
    """The least bytes of any plan, as a refusal names them, and the run in the least budget that was kept.

    It is looked for from what a refusal says of segments, where the device has no end, up to a budget that was kept:
    that of `first`, or what the plain step needs.
    """
    endless = (64 << 30) + 8 * budget_bytes
    in_bytes = run(UNIT, endless).least_bytes
    low, kept = in_bytes or 0, first if first.kept else None
    if in_bytes is not None:
        told = run(in_bytes, endless)
        size = _whole(max(in_bytes, told.least_bytes or told.reserved_bytes))
        if kept is None or size < kept.budget_bytes:
            found = run(size, size)
            if found.kept:
                return in_bytes, found
            low = size
    if kept is None:
        roomy = run(_whole(plain_bytes), _whole(plain_bytes))
        kept = roomy if roomy.kept else None
    for _ in range(TRIES):
        if kept is None:
            break
        middle = _whole((low + kept.budget_bytes) // 2)
        if not low < middle < kept.budget_bytes:
            break
        tried = run(middle, middle)
        low, kept = (low, tried) if tried.kept else (middle, kept)
    return in_bytes, kept


def _whole(size: int) -> int:
    """So many bytes in whole pages of the allocator."""
    return -(-size // UNIT) * UNIT


def trained(
    factory: str,
    asked: Asked,
    expandable: bool,
    by_shapes: bool,
    solver: str,
    budget_bytes: int,
    device_bytes: int,
) -> Planned:
    """Build the program on a device with segments and train it for `STEPS` steps within a plan; nothing stays on it.

    Raises `InvalidInput` where no plan can be made of this model; whatever else the program raises is told.
    """
    gc.collect()
    allocator = CachingAllocator(expandable_segments=expandable)
    sim = use_sim(asked.hardware, capacity_bytes=device_bytes, allocator=allocator, races="off", shapes_only=by_shapes)
    done, times = Planned(budget_bytes), [sim.now_ns()]
    workload = session = None
    try:
        workload = OwnModel(factory=factory).build(sim.device)
        step = workload.step.bare if isinstance(workload.step, TheirStep) else workload.step
        built = memory_stats(sim.device)
        done = replace(done, allocated_bytes=built.peak_bytes, reserved_bytes=built.reserved_peak_bytes)
        session = plan(workload.model, budget=budget_bytes, solver=solver, limits=asked.limits)
        times = [sim.now_ns()]
        with session:
            while len(times) <= STEPS:
                step()
                torch.accelerator.synchronize()
                times.append(sim.now_ns())
                done = _so_far(done, session, times, sim.device)
        return done
    except InfeasibleBudget as error:
        return replace(done, refused=str(error), least_bytes=error.least_budget_bytes)
    except torch.OutOfMemoryError as error:
        return replace(done, refused=str(error).partition(". The device")[0])
    except InvalidInput:
        raise
    except Exception as error:  # a program of theirs: anything, and the other rows are right all the same
        return replace(done, ended=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}".removesuffix(": "))
    finally:
        workload = step = session = None  # type: ignore[assignment]  # their tensors go before the next device
        gc.collect()


def _so_far(done: Planned, session: RecomputeSession, times: list[int], device: torch.device) -> Planned:
    """After steps that ended at these times, in ns, from the second on."""
    stats, count = memory_stats(device), min(TIMED, len(times) - 1)
    now = replace(
        done,
        steps=len(times) - 1,
        allocated_bytes=max(done.allocated_bytes, stats.peak_bytes),
        reserved_bytes=max(done.reserved_bytes, stats.reserved_peak_bytes),
        retries=torch.accelerator.memory_stats(device)["num_alloc_retries"],
        step_us=(times[-1] - times[-1 - count]) // (1000 * count),
    )
    if len(times) <= 2:  # the report of the measured step would ask the solver
        return now
    report = session.report()
    return replace(
        now,
        allocated_bytes=max(now.allocated_bytes, report.first_peak_bytes, report.peak_bytes),
        reserved_bytes=max(now.reserved_bytes, report.reserved_peak_bytes),
        host_bytes=max(now.host_bytes, report.host_bytes),
    )
