"""What a session of planned recomputation decided and did, in numbers."""

from dataclasses import dataclass

from solvers.ir.solution import Status


@dataclass(frozen=True)
class RecomputeReport:
    """What a session decided and did.

    Bytes are of the device's allocator: `first_peak_bytes` of the first step, in which everything ran again;
    `peak_bytes` the largest since the plan; `predicted_peak_bytes` the problem's memory. Operators: `on_demand` ran
    when autograd asked, `ahead` in windows. `exposed_us` is the plan's objective, a step's recomputation on the
    critical path. `diverged`: calls of blocks that ran other operators than the plan was made for, and stored them.
    """

    solver: str
    status: Status
    exposed_us: int
    bound_us: float | None
    budget_bytes: int
    first_peak_bytes: int
    peak_bytes: int
    predicted_peak_bytes: int
    on_demand: int
    ahead: int
    left_out: int
    diverged: int
    replanned: int
