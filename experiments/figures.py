"""The figures of one policy: what a row holds and every table shows."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Figures:
    """None where a figure does not exist for a policy, or was not reached.

    `step_us` is an executed step on the device's clock; `stall_us` the time that its compute lane stood still for the
    plan's transfers, `launch_us` that for launches, less the same of the unlimited step (step = unlimited + stall +
    launches, within what the host does between two steps); `deviation` is (executed − predicted) / executed.
    A joint plan is of the forward and backward pass: `pass_us` executed, `predicted_us`, objective, base and bound.
    `noise_stall_us` is the mean stall over the noise seeds, `noise_worst_us` the longest, `other_stall_us` the stall on
    the other hardware. `swapped_bytes` leave the device in one step. `as_planned` says whether every executed step but
    the first followed the plan.
    """

    budget_bytes: int | None = None
    peak_bytes: int | None = None
    step_us: float | None = None
    unlimited_us: float | None = None
    stall_us: float | None = None
    launch_us: float | None = None
    predicted_us: float | None = None
    pass_us: float | None = None
    predicted_peak_bytes: int | None = None
    deviation: float | None = None
    losses: list[float] | None = None
    equal_losses: bool | None = None
    equal_parameters: bool | None = None
    equal_gradients: bool | None = None
    as_planned: bool | None = None
    status: str | None = None
    engine: str | None = None
    objective_us: int | None = None
    bound_us: float | None = None
    base_us: int | None = None
    gap: float | None = None
    overhead_gap: float | None = None
    solve_time_s: float | None = None
    least_budget_bytes: int | None = None
    swapped_bytes: int | None = None
    noise_stall_us: float | None = None
    noise_worst_us: float | None = None
    other_stall_us: float | None = None

    @property
    def ratio(self) -> float | None:
        """Step time over the unlimited step time."""
        return self.step_us / self.unlimited_us if self.step_us is not None and self.unlimited_us else None

    @property
    def stall_share(self) -> float | None:
        """Stall over the unlimited step time."""
        return self.stall_us / self.unlimited_us if self.stall_us is not None and self.unlimited_us else None

    @property
    def launch_share(self) -> float | None:
        """Launches over the unlimited step time."""
        return self.launch_us / self.unlimited_us if self.launch_us is not None and self.unlimited_us else None

    def joined(self, other: "Figures") -> "Figures":
        """These figures, and those that the other one has."""
        known = {name: value for name, value in dataclasses.asdict(other).items() if value is not None}
        return dataclasses.replace(self, **known)

    def to_raw(self) -> dict[str, Any]:
        """As a row's figures: what is None stays out, ratios are written too."""
        known = {**dataclasses.asdict(self), "ratio": self.ratio, "stall_share": self.stall_share}
        return {name: value for name, value in known.items() if value is not None}


def figures_of(raw: dict[str, Any]) -> Figures:
    """The figures that `to_raw` wrote; what an older or newer version wrote beside them is left out."""
    names = {entry.name for entry in dataclasses.fields(Figures)}
    return Figures(**{name: value for name, value in raw.items() if name in names})
