"""What `bayplan fit` answers: a row for each technique, in bytes and microseconds, each figure with its source."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from experiments.fit.outside import Outside
from experiments.fit.trace import Kind

FORMAT = "bayplan-fit/1"
Technique = Literal["plain", "full", "selective", "planned", "swap", "joint", "session"]
TECHNIQUES: dict[Technique, str] = {
    "plain": "plain",
    "full": "full recomputation",
    "selective": "selective recomputation",
    "planned": "planned recomputation",
    "swap": "swapping",
    "joint": "both together",
    "session": "a session",
}
MODELLED = "modelled"
"""How reserved bytes are known: by the public rules of PyTorch's allocator, executed on no device."""


@dataclass(frozen=True)
class Where:
    """The moment at which most bytes are in use: an operator of the step (None: between two), and what holds them."""

    operator: str
    number: int | None
    phase: str
    bytes: int
    bytes_by_kind: Mapping[Kind, int]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One technique. Absent figures are None, and `reason` says why; `fits` None: not known, or
    in bytes only (`fits_allocated`).

    - `allocated_bytes`, `reserved_bytes`: peaks where the device is large enough. `reserved_bytes` is what the
      allocator would hold if it never had to give anything back, and `segments` of what it would then be made: sizes
      in bytes (of expandable segments: of what they grow by) with how many there are.
    - `least_allocated_bytes`, `least_reserved_bytes`: the least device memory with which the technique works, if every
      byte could be used, and in segments. The margins are the budget less these two.
    - `fits`: the replay of the allocator's rules within the budget serves every request; `fits_allocated`: the bytes
      alone would fit. `retries` counts how often cached segments had to go back first.
    - `host_bytes`: host memory of the plan; `host_rounded_bytes` the same where page-locked blocks are rounded up to
      powers of two, as PyTorch's host allocator does; `least_host_bytes`: what any plan in that budget takes at least.
    - `step_us` with `step_how`; of swapping, the plan that fits the budget, made for `plan_budget_bytes` by `solver`.
      `estimated`: all bytes of a step by shapes alone some of whose kernels' temporaries are a guess: so is `fits`.
      `asked`: the solvers whose plans were tried; `least_reserved_solver`: whose plan needs the least in segments.
    """

    technique: Technique
    what: str
    how: str
    fits: bool | None = None
    fits_allocated: bool | None = None
    estimated: bool = False
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    segments: tuple[tuple[int, int], ...] = ()
    least_allocated_bytes: int | None = None
    least_reserved_bytes: int | None = None
    margin_allocated_bytes: int | None = None
    margin_reserved_bytes: int | None = None
    retries: int | None = None
    host_bytes: int | None = None
    host_rounded_bytes: int | None = None
    least_host_bytes: int | None = None
    step_us: int | None = None
    step_how: str | None = None
    plan_budget_bytes: int | None = None
    solver: str | None = None
    asked: tuple[str, ...] = ()
    least_reserved_solver: str | None = None
    peak: Where | None = None
    remarks: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def name(self) -> str:
        """The technique's name for people."""
        return TECHNIQUES[self.technique]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Everything that one call of `bayplan fit` found out; `attention` is a shape's, None where a program was run.

    `interrupted`: Ctrl-C came before the end; techniques that were not whole then have no row.
    """

    name: str
    source: str
    hardware: str
    device_bytes: int
    outside: Outside
    budget_bytes: int
    budget_how: str
    expandable: bool
    attention: str | None = None
    interrupted: bool = False
    rows: tuple[Row, ...] = field(default_factory=tuple)

    @property
    def fits(self) -> bool:
        """Whether some technique does."""
        return any(row.fits for row in self.rows)

    def told(self) -> dict[str, Any]:
        """As JSON (experiments/fit/README.md)."""
        raw = asdict(self)
        raw["outside"] = {"bytes": self.outside.bytes, "parts": self.outside.parts, "how": self.outside.how}
        fits = None if self.interrupted and not self.fits else self.fits
        return {"format": FORMAT, "fits": fits, "reserved_how": MODELLED, **raw}
