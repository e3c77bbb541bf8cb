"""An eager swapping session: judged by training within the budget on the simulated device, as no plan says it."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from experiments.fit.answer import MODELLED, Row
from experiments.fit.judge import Budget, allocated_peak
from experiments.fit.recording import Recording
from experiments.models.own import OwnModel, TheirStep
from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.swap import session
from runtime.swap.stages import Stage
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.timeline.segments import least_limit

WHAT = "the program as it is within runtime.swap.session(budget): whatever is needed leaves and comes back by itself"
MOST_STEPS, SETTLED, TIMED = 16, 3, 2
"""A run ends `SETTLED` steps after the session is Stable, or at the first figure; the last `TIMED` count."""
FEW_STEPS, TRIES = 4, 4
"""Steps of a run that looks for the least budget, in which memory is shortest as nothing is planned yet; such runs."""
UNIT = 2 << 20
CUT = " (sim out of memory"
"""Behind this a refusal goes on in the allocator's words, of a device that is none."""


@dataclass(frozen=True)
class Trained:
    """What a session did in `steps` steps, or why it did not (`refused`); bytes, and us of the last steps' mean."""

    budget_bytes: int
    steps: int
    stage: str
    allocated_bytes: int
    reserved_bytes: int
    host_bytes: int
    retries: int
    step_us: int
    refused: str | None

    @property
    def kept(self) -> bool:
        """Whether it trained and the allocator held no more than the budget."""
        return self.refused is None and self.reserved_bytes <= self.budget_bytes


def session_row(factory: str, hardware: Hardware, recording: Recording, budget: Budget) -> Row:
    """The row of MODULE:FACTORY in a session; what cannot be run so says why."""
    by = "by shapes alone" if recording.by_shapes else "with bytes"
    blank = Row(technique="session", what=WHAT, how=f"run in a session on the simulated device, {by}")

    def run(budget_bytes: int, most_steps: int) -> Trained:
        return train(factory, hardware, replace(budget, bytes=budget_bytes), most_steps, recording.by_shapes)

    try:
        asked = run(budget.bytes, MOST_STEPS)
        plain = least_limit(recording.trace.events, budget.endless)
        least, refused = _least(run, asked, _most_at_once(recording.trace.graph), plain)
        if least is None:
            return replace(blank, fits=False, reason=f"refused: {asked.refused}; and within {show_bytes(plain)}")
        shown = asked if asked.kept else run(least.budget_bytes, MOST_STEPS)
    except (InvalidInput, RuntimeError) as error:
        return replace(blank, reason=f"cannot be told: {str(error).partition(chr(10))[0]}")
    finally:
        gc.collect()
    return replace(
        blank,
        how=f"{blank.how}, {shown.steps} steps; reserved {MODELLED}",
        fits=asked.kept,
        allocated_bytes=shown.allocated_bytes,
        reserved_bytes=shown.reserved_bytes,
        least_reserved_bytes=least.budget_bytes,
        margin_reserved_bytes=budget.bytes - least.budget_bytes,
        retries=shown.retries,
        host_bytes=shown.host_bytes,
        least_host_bytes=max(0, allocated_peak(recording.trace.events) - shown.budget_bytes),
        step_us=shown.step_us,
        step_how=f"sim-executed, virtual time of {hardware.name}, mean of the last {TIMED} steps, {shown.stage}",
        remarks=tuple(_remarks(asked, shown, least, refused, recording.trace.graph)),
    )


def train(factory: str, hardware: Hardware, budget: Budget, most_steps: int, by_shapes: bool) -> Trained:
    """Build the program and train it in a session within the budget, on a device larger than that, in segments.

    Nothing stays on it. Raises what the program raises, but for memory that the budget lacks.
    """
    gc.collect()
    allocator = CachingAllocator(expandable_segments=budget.expandable)
    sim = use_sim(
        hardware, capacity_bytes=(64 << 30) + 8 * budget.bytes, allocator=allocator, races="off", shapes_only=by_shapes
    )
    workload = OwnModel(factory=factory).build(sim.device)
    step = workload.step.bare if isinstance(workload.step, TheirStep) else workload.step
    built, refused, left, times = memory_stats(sim.device).reserved_peak_bytes, None, SETTLED, [sim.now_ns()]
    swapping = session(budget.bytes, device=sim.device)
    try:
        with swapping:
            while len(times) <= most_steps and left > 0:
                step()
                torch.accelerator.synchronize()
                times.append(sim.now_ns())
                left -= swapping.report().stage == Stage.STABLE.value
    except torch.OutOfMemoryError as error:
        refused = str(error).partition(CUT)[0]
    if built > budget.bytes:
        refused = f"building it takes {show_bytes(built)} in segments: let the session begin before that"
    report, count = swapping.report(), min(TIMED, len(times) - 1)
    return Trained(
        budget_bytes=budget.bytes,
        steps=len(times) - 1,
        stage=report.stage,
        allocated_bytes=report.peak_bytes,
        reserved_bytes=report.reserved_peak_bytes or 0,
        host_bytes=report.host_peak_bytes,
        retries=report.counts.retries,
        step_us=(times[-1] - times[-1 - count]) // (1000 * max(1, count)),
        refused=refused,
    )


def _least(
    run: Callable[[int, int], Trained], asked: Trained, most_at_once: int, plain: int
) -> tuple[Trained | None, Trained | None]:
    """The least budget, in whole segments, that was kept, and the largest one below it that was refused."""
    kept, refused = (asked, None) if asked.kept else (None, asked)
    if kept is None:
        kept = run(plain, FEW_STEPS)
        if not kept.kept:
            return None, asked
    low = asked.budget_bytes if refused is asked else most_at_once
    for _ in range(TRIES):
        middle = -(-(low + kept.budget_bytes) // 2 // UNIT) * UNIT
        if not low < middle < kept.budget_bytes:
            break
        tried = run(middle, FEW_STEPS)
        if tried.kept:
            kept = tried
        else:
            low, refused = middle, tried
    return kept, refused


def _most_at_once(graph: OpGraph) -> int:
    """The most bytes that an operator works on at once, its arguments and results: no budget can be less."""
    sizes = {tensor.id: tensor.bytes for tensor in graph.tensors}
    return max(sum(sizes[tensor] for tensor in {*op.inputs, *op.outputs}) for op in graph.ops)


def _remarks(asked: Trained, shown: Trained, least: Trained, refused: Trained | None, graph: OpGraph) -> list[str]:
    remarks = []
    if not asked.kept:
        remarks.append(f"refused: {asked.refused or 'the allocator held more than the budget'}")
        remarks.append(f"peaks, host memory and step are those within {show_bytes(shown.budget_bytes)}")
    bound = f"one operator alone works on {show_bytes(_most_at_once(graph))}"
    below = "none below it was refused" if refused is None else f"{show_bytes(refused.budget_bytes)} were refused"
    ran = f"trained {least.steps} steps"
    remarks.append(f"least device: the least budget of those tried, {ran}; {below}, and {bound}")
    if shown.stage != Stage.STABLE.value:
        remarks.append(f"the session had kept no policy after {shown.steps} steps: a step may become faster")
    return remarks
