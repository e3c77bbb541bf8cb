"""What a layout was decided to be, what it promised, and what the last step took."""

from dataclasses import dataclass

import torch

from runtime.device import memory_stats
from runtime.layout.deciding import Decided
from runtime.layout.store import Store
from runtime.layout.updates import Updates
from solvers.ir.layout import LayoutPlan


@dataclass(frozen=True)
class LayoutReport:
    """A layout and its worth. `bound_us` and `gap` are None where the plan was given, or nothing is proven."""

    plan: LayoutPlan
    chunks: int
    chunk_bytes: int
    predicted_peak_bytes: int
    peak_bytes: int
    predicted_step_us: int | None
    bound_us: float | None
    gap: float | None
    pinned_bytes: int
    departures: int
    overlapping: bool
    why_not_overlapping: str | None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        plan = self.plan
        counts = ", ".join(f"{plan.policies.count(policy)} {policy}" for policy in ("keep", "swap", "checkpoint"))
        why = "" if self.why_not_overlapping is None else f" ({self.why_not_overlapping})"
        return [
            f"chunks        {self.chunks} of {self.chunk_bytes} bytes: {len(plan.persistent)} persistent, "
            f"{plan.buffers} buffers for the others",
            f"blocks        {counts}",
            f"device peak   {self.peak_bytes} bytes, predicted {self.predicted_peak_bytes}",
            f"step          predicted {self.predicted_step_us} µs, bound {self.bound_us}",
            f"host          {self.pinned_bytes} bytes page-locked",
            f"updates       {'beside' if self.overlapping else 'after'} backward{why}",
            f"departures    {self.departures}",
        ]


class Meter:
    """Measures steps."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def peak_bytes(self) -> int:
        """The device's peak since its statistics were reset last."""
        return memory_stats(self.device).peak_bytes


def layout_report(decided: Decided, store: Store, updates: Updates, meter: Meter) -> LayoutReport:
    """The report of a wrapped model."""
    solution = decided.solution
    pinned = [one for chunk in store.chunks if not chunk.persistent for one in (chunk.host, chunk.gradients)]
    return LayoutReport(
        plan=decided.plan,
        chunks=len(decided.problem.chunks),
        chunk_bytes=decided.problem.chunk_bytes,
        predicted_peak_bytes=decided.peak_bytes(),
        peak_bytes=meter.peak_bytes,
        predicted_step_us=None if solution is None else solution.objective,
        bound_us=None if solution is None else solution.bound,
        gap=None if solution is None else solution.gap,
        pinned_bytes=sum(one.nbytes for one in pinned if one is not None),
        departures=store.departures,
        overlapping=updates.overlapping,
        why_not_overlapping=updates.reason,
    )
