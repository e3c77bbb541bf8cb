"""One way in a race: its steps, its memory, its copies, and whether it computed the same."""

import gc
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import torch

from experiments.bench.offload.model import RaceShape, Wrap
from experiments.bench.offload.pinned import forget_pinned, pinned_bytes
from experiments.bench.offload.planned import Plans
from experiments.bench.offload.rivals import Around, nothing
from experiments.bench.overlap import hidden_share, traced, traced_on_sim
from runtime.device import CachingAllocator, SimDevice, accelerator, clock, memory_stats, reset_peak_memory, use_sim
from runtime.recompute import RecomputeReport, plan
from runtime.swap import session

SETTLED, MEASURED = 14, 5
"""Steps until a session keeps a policy (m + n + 2 iterations, and some), and steps that are measured then."""
WARMED = 3
"""Steps of other ways before those that are measured."""
DECIDED = 6
"""Steps until recomputation is planned: one is measured, the next begins with a decision, three more may correct it."""


@dataclass(frozen=True)
class Way:
    """How a race's model spends less memory: blocks wrapped, a context around steps, a session, or a plan.

    `share` is of the plain run's peak: of segments for sessions and executed plans, of bytes in use where `solver`
    decides what is computed again (and, `joint`, what leaves), whose budgets count those.
    """

    name: str
    wrap: Wrap | None = None
    around: Around = nothing
    kind: str = "plain"
    share: float | None = None
    solver: str = ""


@dataclass(frozen=True)
class Ran:
    """What a way took; `error` says why it did not finish, and then the rest is what was seen until then.

    `peak_bytes` are in use, `reserved_bytes` of segments, `pinned_bytes` page-locked on the host: the most of each.
    `hidden` is the share of the copies' time during which a kernel runs, in one more step.
    """

    way: str
    step_us: float | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    pinned_bytes: int | None = None
    retries: int | None = None
    settled_retries: int | None = None
    hidden: float | None = None
    losses: tuple[float, ...] = ()
    said: str = ""
    error: str | None = None

    def equals(self, other: "Ran") -> bool:
        """Whether the steps that both did gave the same losses, bit by bit."""
        return bool(self.losses) and all(a == b for a, b in zip(self.losses, other.losses, strict=False))

    def raw(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "losses": list(self.losses)}


@dataclass(frozen=True)
class Track:
    """Where and what is raced; `plans` makes and keeps what executed plans need.

    `segments` are the rules by which sim gives memory out; None: mode `exact`, which has none, and nothing to retry.
    """

    device: str
    shape: RaceShape
    plans: Plans
    segments: CachingAllocator | None = None
    settled: int = SETTLED
    warmed: int = WARMED
    measured: int = MEASURED


def run_way(track: Track, way: Way, plain: Ran | None) -> Ran:
    """Build the model, train it, and say what it took; whatever goes wrong is the row's error."""
    device, sim = opened(track.device, track.segments)
    try:
        return _Race(track, way, device, sim).run(plain)
    except Exception as error:  # another library's, too: the others race on
        stats = memory_stats(device)
        return Ran(
            way.name,
            peak_bytes=stats.peak_bytes,
            reserved_bytes=stats.reserved_peak_bytes,
            retries=stats.retries,
            error=f"{type(error).__name__}: {' '.join(str(error).split())[:1500]}",
        )


def opened(name: str, segments: CachingAllocator | None = None) -> tuple[torch.device, SimDevice | None]:
    """The accelerator, with nothing of an earlier run on it."""
    gc.collect()
    torch.manual_seed(0)
    if name == "sim":
        if torch._C._get_privateuse1_backend_name() == "sim":
            torch.accelerator.synchronize()
        forget_pinned(torch.device("cpu"))
        sim = use_sim(races="off", allocator=segments or "exact")
        return sim.device, sim
    device = accelerator("cuda")
    torch.cuda.synchronize(device)
    forget_pinned(device)
    torch.cuda.empty_cache()
    return device, None


class _Race:
    """The run of one way."""

    def __init__(self, track: Track, way: Way, device: torch.device, sim: SimDevice | None) -> None:
        self._track, self._way, self._device, self._sim = track, way, device, sim
        self._losses: list[torch.Tensor] = []
        self._times: list[float] = []

    def run(self, plain: Ran | None) -> Ran:
        work = self._track.shape.build(self._device, self._way.wrap)
        torch.accelerator.empty_cache()  # of what drawing the weights took
        reset_peak_memory(self._device)
        before = memory_stats(self._device).retries
        around = self._way.around(work.model)
        budget = int((self._way.share or 0) * (plain.reserved_bytes or 0)) if plain is not None else 0
        said, peak_bytes = "", None
        longest = self._way.kind == "session" or plain is None  # whose losses all others' are compared with
        settled_from = self._track.settled if longest else self._track.warmed
        with ExitStack() as stack:
            step: Callable[[], torch.Tensor] = work.step
            if self._way.kind == "session":
                running = stack.enter_context(session(budget, device=self._device))
            if self._way.kind == "executed":
                step, told = stack.enter_context(self._track.plans.executed(work, self._device, budget, self._kept))
                settled_from, said = 1, told
            if self._way.kind == "recomputed":
                bytes_in_use = int((self._way.share or 0) * (plain.peak_bytes or 0)) if plain is not None else 0
                limits = self._track.plans.limits
                planned = plan(work.model, budget=bytes_in_use, solver=self._way.solver, limits=limits)
                stack.enter_context(planned)
                settled_from = DECIDED
            for _ in range(settled_from):
                self._timed(step, around)
            settled_retries = memory_stats(self._device).retries
            for _ in range(self._track.measured):
                self._timed(step, around)
            if self._way.kind == "session":
                report = running.report()
                said = "; ".join([f"stage {report.stage}", *report.remarks])
            if self._way.kind == "recomputed":
                said = _said_of(planned.report())
                peak_bytes = planned.report().peak_bytes
            stats = memory_stats(self._device)
            pinned = pinned_bytes(self._device, peak=True)
            hidden = self._hidden(step, around)
        return Ran(
            way=self._way.name,
            step_us=statistics.median(self._times[-self._track.measured :]),
            peak_bytes=peak_bytes or stats.peak_bytes,
            reserved_bytes=stats.reserved_peak_bytes,
            pinned_bytes=pinned,
            retries=stats.retries - before,
            settled_retries=stats.retries - settled_retries,
            hidden=hidden,
            losses=tuple(float(loss.float().item()) for loss in self._losses),
            said=said,
        )

    def _kept(self, loss: torch.Tensor) -> None:
        self._losses.append(loss.detach().cpu())

    def _timed(self, step: Callable[[], torch.Tensor], around: Callable[[], AbstractContextManager[object]]) -> None:
        now_ns = clock(self._device)
        began = now_ns()
        with around():
            loss = step()
        self._times.append((now_ns() - began) / 1e3)
        self._kept(loss)

    def _hidden(
        self, step: Callable[[], torch.Tensor], around: Callable[[], AbstractContextManager[object]]
    ) -> float | None:
        """In one more step, traced."""

        def once() -> None:
            with around():
                step()

        events = traced(once) if self._sim is None else traced_on_sim(once, self._sim)
        return hidden_share(events)


def _said_of(report: RecomputeReport) -> str:
    """What a planned run did, and how long the plan said that its passes take."""
    told = (
        f"{report.solver}, {report.status.value}, budget {report.budget_bytes}, predicted {report.predicted_peak_bytes}"
    )
    passes = (
        ""
        if report.predicted_pass_us is None
        else f", passes {report.pass_us} us, predicted {report.predicted_pass_us}"
    )
    moved = f", in all steps {report.swapped_out} left, {report.out_bytes} bytes" if report.swapped_out else ""
    return f"{told}{passes}{moved}, {report.on_demand} on demand, {report.ahead} ahead, {report.replanned} replanned"
