"""What a schedule did or would do (formats.md 12), and one cell of an experiment (formats.md 13)."""

from typing import Any, ClassVar, Literal

import msgspec

from solvers.ir.fields import Bytes, Index, NonNegativeFloat, Record


class Span(Record, frozen=True, kw_only=True):
    """Start and end of one action, in microseconds since the step began."""

    action: Index
    lane: str
    label: str
    start_us: NonNegativeFloat
    end_us: NonNegativeFloat


class Report(Record, frozen=True, kw_only=True):
    """One step, simulated or executed: the type is the same, so a model's error is a subtraction.

    `source` says which and by what (hardware file or device). `memory` lists (time, bytes in use) at each change.
    `stall_us` maps a cause (`swap_in`: compute waits for data; `swap_out`: it waits for memory) to its time.
    `launch_us` is the time that compute waits for the host to launch, less what it waits for it in a step without the
    plan: above 0 where launching transfers holds it up, below 0 where the host runs ahead during stalls, so that ops
    behind them need not wait for their launches. Where it is known, makespan = base + stalls + launches.
    """

    FORMAT: ClassVar[str] = "bayplan-report/1"
    name: str
    how: Literal["simulated", "executed"]
    source: str
    makespan_us: NonNegativeFloat
    base_us: NonNegativeFloat | None = None
    budget_bytes: Bytes | None = None
    peak_bytes: Bytes = 0
    peak_at_us: NonNegativeFloat = 0.0
    stall_us: dict[str, NonNegativeFloat] = msgspec.field(default_factory=dict)
    launch_us: float | None = None
    spans: tuple[Span, ...] = ()
    memory: tuple[tuple[NonNegativeFloat, Bytes], ...] = ()


class Row(Record, frozen=True, kw_only=True):
    """One cell of an experiment: what was asked, how it ended, its figures, and where they come from.

    `refused` is a sentence of Bayplan's in place of a run or of its rest, `error` whatever else ended it.
    """

    FORMAT: ClassVar[str] = "bayplan-row/1"
    experiment: str
    asked: dict[str, Any]
    outcome: Literal["ok", "infeasible", "out-of-memory", "timeout", "refused", "error"]
    figures: dict[str, Any]
    provenance: str
    commit: str | None
    seed: int
    reason: str | None = None
