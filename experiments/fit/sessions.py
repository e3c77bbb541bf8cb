"""An eager swapping session: judged by training within the budget on the simulated device, as no plan says it."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from experiments.fit.answer import MODELLED, Row
from experiments.fit.judge import Budget, allocated_peak
from experiments.fit.recording import Recording
from experiments.models.own import OwnModel, TheirStep
from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.swap import session
from runtime.swap.report import SessionReport
from runtime.swap.stages import Stage
from solvers.ir.amounts import show_bytes
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.timeline.segments import least_limit

WHAT = "the program as it is within runtime.swap.session(budget): whatever is needed leaves and comes back by itself"
MOST_STEPS, SETTLED, TIMED = 16, 3, 2
"""A run ends `SETTLED` steps after the session is Stable, or at the first figure; the last `TIMED` count."""
FEW_STEPS, TRIES = 4, 4
"""Steps of a run that looks for the least budget, in which memory is shortest as nothing is planned yet; such runs."""
ENOUGH = 3
"""A program that ends by itself, as its batches do, is judged by so many steps, which the other rows train too."""
UNIT = 2 << 20
CUT = " (sim out of memory"
"""Behind this a refusal goes on in the allocator's words, of a device that is none."""


@dataclass(frozen=True)
class Trained:
    """What a session did in `steps` steps, or why it did not (`refused`); bytes, and us of the last steps' mean.

    `ended`: what the program raised, where it did not train as long as it was asked to.
    """

    budget_bytes: int
    steps: int = 0
    stage: str = ""
    reserved_bytes: int = 0
    host_bytes: int = 0
    retries: int = 0
    step_us: int = 0
    refused: str | None = None
    ended: str | None = None

    @property
    def unknown(self) -> str | None:
        """Why nothing is known: the program ended by itself before it had trained enough."""
        if self.refused is not None or self.ended is None or self.steps >= ENOUGH:
            return None
        return f"the program ran {self.steps} steps only ({self.ended})"

    @property
    def kept(self) -> bool:
        """Whether it trained and the allocator held no more than the budget."""
        return self.unknown is None and self.refused is None and self.reserved_bytes <= self.budget_bytes

    @property
    def why_not(self) -> str:
        """Why it was not kept."""
        return self.unknown or self.refused or f"the allocator held {show_bytes(self.reserved_bytes)}, which is more"


Run = Callable[[int, int], Trained]


def session_row(factory: str, hardware: Hardware, recording: Recording, budget: Budget) -> Row:
    """The row of MODULE:FACTORY in a session; what cannot be run so says why.

    The session is given what the plain step needs where the budget is larger: there is nothing to swap in more.
    """
    by = "by shapes alone" if recording.by_shapes else "with bytes"
    blank = Row(technique="session", what=WHAT, how=f"run in a session on the simulated device, {by}")

    def run(budget_bytes: int, most_steps: int) -> Trained:
        return train(factory, hardware, replace(budget, bytes=budget_bytes), most_steps, recording.by_shapes)

    graph, plain = recording.trace.graph, least_limit(recording.trace.events, budget.endless)
    first = run(min(budget.bytes, plain), MOST_STEPS)
    if first.unknown is not None:
        return replace(blank, reason=f"cannot be told: {first.unknown}")
    larger = [plain] if budget.bytes <= plain else [min(budget.bytes, 2 * plain), budget.bytes]
    kept, refused = (first, None) if first.kept else _first_kept(run, first, larger)
    if kept is None:
        last = refused or first
        fits = None if last.unknown and first.budget_bytes < budget.bytes else False
        told = [f"{show_bytes(one.budget_bytes)}: {one.why_not}" for one in dict.fromkeys((first, last))]
        return replace(blank, fits=fits, reason=f"not within {' and '.join(told)}")
    fits = kept.budget_bytes <= budget.bytes
    least, refused, unknown = _least(run, kept, refused, _most_at_once(graph))
    shown = first if first.kept else run((kept if fits else least).budget_bytes, MOST_STEPS)
    row = replace(
        blank,
        fits=fits,
        least_reserved_bytes=least.budget_bytes,
        margin_reserved_bytes=budget.bytes - least.budget_bytes,
        remarks=tuple(_remarks(budget.bytes, first, shown, least, refused, unknown, graph)),
    )
    if not shown.kept:
        return row
    return replace(
        row,
        how=f"{blank.how}, {shown.steps} steps within {show_bytes(shown.budget_bytes)}; reserved {MODELLED}",
        reserved_bytes=shown.reserved_bytes,
        retries=shown.retries,
        host_bytes=shown.host_bytes,
        least_host_bytes=max(0, allocated_peak(recording.trace.events) - shown.budget_bytes),
        step_us=shown.step_us,
        step_how=f"sim-executed, virtual time of {hardware.name}, mean of the last {TIMED} steps, {shown.stage}",
    )


def train(factory: str, hardware: Hardware, budget: Budget, most_steps: int, by_shapes: bool) -> Trained:
    """Build the program and train it in a session within the budget, on a device larger than that, in segments.

    Nothing stays on it. Whatever the program raises is told, as it may have no more batches than it once needed.
    """
    gc.collect()
    allocator = CachingAllocator(expandable_segments=budget.expandable)
    sim = use_sim(
        hardware, capacity_bytes=(64 << 30) + 8 * budget.bytes, allocator=allocator, races="off", shapes_only=by_shapes
    )
    done, times, left = Trained(budget.bytes), [sim.now_ns()], SETTLED
    try:
        workload = OwnModel(factory=factory).build(sim.device)
        step = workload.step.bare if isinstance(workload.step, TheirStep) else workload.step
        built = memory_stats(sim.device).reserved_peak_bytes
        if built > budget.bytes:
            refused = f"building it takes {show_bytes(built)} in segments: let the session begin before that"
            return replace(done, refused=refused)
        times = [sim.now_ns()]
        with session(budget.bytes, device=sim.device) as swapping:
            while len(times) <= most_steps and left > 0:
                step()
                torch.accelerator.synchronize()
                times.append(sim.now_ns())
                done = _so_far(swapping.report(), times)
                left -= done.stage == Stage.STABLE.value
    except torch.OutOfMemoryError as error:
        return replace(done, refused=str(error).partition(CUT)[0])
    except Exception as error:  # a program of theirs: anything, and the other rows are right all the same
        return replace(done, ended=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}".removesuffix(": "))
    finally:
        workload = step = None  # type: ignore[assignment]  # so that their tensors go before the next device
        gc.collect()
    return done


def _so_far(report: SessionReport, times: Sequence[int]) -> Trained:
    """What an active session reports after steps that ended at these times, in ns, from the second on."""
    count = min(TIMED, len(times) - 1)
    return Trained(
        budget_bytes=report.budget_bytes,
        steps=len(times) - 1,
        stage=report.stage,
        reserved_bytes=report.reserved_peak_bytes or 0,
        host_bytes=report.host_peak_bytes,
        retries=report.counts.retries,
        step_us=(times[-1] - times[-1 - count]) // (1000 * count),
    )


def _first_kept(run: Run, first: Trained, larger: Sequence[int]) -> tuple[Trained | None, Trained]:
    """The first run that was kept, of `first` and of larger and larger budgets, and the one before that was not.

    None where none was, with the last run; of one of which nothing is known, no more are tried.
    """
    refused = first
    for budget_bytes in larger:
        if refused.unknown is None and budget_bytes > refused.budget_bytes:
            tried = run(budget_bytes, FEW_STEPS)
            if tried.kept:
                return tried, refused
            refused = tried
    return None, refused


def _least(
    run: Run, kept: Trained, refused: Trained | None, most_at_once: int
) -> tuple[Trained, Trained | None, Trained | None]:
    """The least budget, in whole segments, that was kept, the largest one below it that was refused, and the
    run of which nothing is known, with which the search ended.
    """
    low = most_at_once if refused is None else refused.budget_bytes
    for _ in range(TRIES):
        middle = -(-(low + kept.budget_bytes) // 2 // UNIT) * UNIT
        if not low < middle < kept.budget_bytes:
            break
        tried = run(middle, FEW_STEPS)
        if tried.unknown is not None:
            return kept, refused, tried
        if tried.kept:
            kept = tried
        else:
            low, refused = middle, tried
    return kept, refused, None


def _most_at_once(graph: OpGraph) -> int:
    """The most bytes that an operator works on at once, its arguments and results: no budget can be less."""
    sizes = {tensor.id: tensor.bytes for tensor in graph.tensors}
    return max(sum(sizes[tensor] for tensor in {*op.inputs, *op.outputs}) for op in graph.ops)


def _remarks(
    budget_bytes: int,
    first: Trained,
    shown: Trained,
    least: Trained,
    refused: Trained | None,
    unknown: Trained | None,
    graph: OpGraph,
) -> Iterator[str]:
    if not first.kept:
        yield f"refused within {show_bytes(first.budget_bytes)}: {first.why_not}"
    within = f"peaks, host memory and step are those within {show_bytes(shown.budget_bytes)}"
    if not shown.kept:
        yield f"peaks, host memory and step are not known: within {show_bytes(shown.budget_bytes)}, {shown.why_not}"
    elif first.kept and first.budget_bytes < budget_bytes:
        yield f"{within}, which serve the plain step: a session needs no more of the budget"
    elif not first.kept:
        yield within
    bound = f"one operator alone works on {show_bytes(_most_at_once(graph))}"
    below = "none below it was refused" if refused is None else f"{show_bytes(refused.budget_bytes)} were refused"
    yield f"least device: the least budget of those tried, trained {least.steps} steps; {below}, and {bound}"
    if unknown is not None:
        yield f"the search ended at {show_bytes(unknown.budget_bytes)}, where {unknown.unknown}"
    if shown.kept and shown.ended is not None:
        yield f"the program ended after {shown.steps} steps by itself ({shown.ended}): it is judged by these"
    elif shown.kept and shown.stage != Stage.STABLE.value:
        yield f"the session had kept no policy after {shown.steps} steps: a step may become faster"
