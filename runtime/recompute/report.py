"""What a session of planned recomputation decided and did, in numbers."""

from dataclasses import dataclass

from solvers.ir.solution import Status


@dataclass(frozen=True)
class RecomputeReport:
    """What a session decided and did.

    Bytes are of the device's allocator: `first_peak_bytes` of the first step, in which everything ran again;
    `peak_bytes` the largest since the second step began, whichever plan was carried out and whatever ran (an
    optimizer's step, too; 0: no second step was seen), `plan_peak_bytes` since the latest plan (0: nothing was seen of
    it); `reserved_peak_bytes` that of segments since that plan (0 on devices without); `predicted_peak_bytes` the
    problem's memory. `within_budget`: `peak_bytes` and `reserved_peak_bytes` kept the budget (None: nothing was seen).
    `blocks` are the modules that were planned, by their names in the model. Plans were made again `replanned` times
    since they took more than the budget. Operators: `on_demand` ran
    when autograd asked, `ahead` in windows.
    `exposed_us` is the plan's objective, a step's recomputation on the critical path; of joint plans all by which the
    step takes longer, behind the pass, too, where the host is late for what follows. `diverged`: calls of blocks
    that ran other operators than the plan was made for, or that the measured step had not; they store nothing from
    there on. `measured`: how often a step was measured, the first one and others (see `runtime.recompute.measuring`).
    Of joint plans: storages `swapped_out` and
    `swapped_in`, and what left in bytes; `refused` could not leave, `postponed` found no memory when they were to
    return. `host_bytes` is page-locked; a pass takes from its first block to the end of its backward pass, `pass_us`
    the latest one, `predicted_pass_us` one by the plan (None where several forward passes come before a backward
    pass, and do not go back as one: plans reckon with multiples of one's time; or where other streams of the program
    work within the pass: how they and what moves hold each other up is not known).
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
    measured: int = 1
    swapped_out: int = 0
    swapped_in: int = 0
    out_bytes: int = 0
    refused: int = 0
    postponed: int = 0
    host_bytes: int = 0
    predicted_pass_us: int | None = None
    pass_us: float | None = None
    reserved_peak_bytes: int = 0
    plan_peak_bytes: int = 0
    within_budget: bool | None = None
    blocks: tuple[str, ...] = ()
