"""What a session did: counts, the policies that it tried, and whether it stayed within its budget."""

from dataclasses import dataclass, fields

import msgspec

from runtime.device.native import core
from runtime.swap.cost import SwapCost
from runtime.swap.portfolio import PolicyChoice
from solvers.ir.amounts import show_bytes


@dataclass(frozen=True, kw_only=True)
class SessionCounts:
    """What happened to storages, in one iteration or in all.

    Of the policy's tensors, `matched` were sighted and `unmatched` not; `refused` could not leave, `spared` need not,
    as the policy has them for larger iterations. `swapped_out` and `swapped_in` are copies, planned or not, of
    `out_bytes` and `in_bytes`; `in_time` planned returns met their use.
    On demand came back `fetched` (they were away) and `cancelled` (still leaving). Of the planned returns, `kept` found
    a tensor whose block nobody had needed meanwhile, `postponed` found no memory, `recalled` were undone because memory
    was short, `missed_events` found no tensor. `died` were freed while out. Where memory was short, `relieved` blocks
    were released early, `moved` blocks of `moved_bytes` put elsewhere on the device, so that what is free lies
    together, `passive` storages of `passive_bytes` sent away, and `failed` requests helped by nothing; for `retries`
    the allocator gave its cached segments back to the driver. Operators that had run out of memory ran `again`.
    """

    matched: int = 0
    unmatched: int = 0
    swapped_out: int = 0
    swapped_in: int = 0
    in_time: int = 0
    fetched: int = 0
    cancelled: int = 0
    died: int = 0
    refused: int = 0
    spared: int = 0
    kept: int = 0
    postponed: int = 0
    recalled: int = 0
    passive: int = 0
    passive_bytes: int = 0
    moved: int = 0
    moved_bytes: int = 0
    relieved: int = 0
    again: int = 0
    failed: int = 0
    retries: int = 0
    missed_events: int = 0
    out_bytes: int = 0
    in_bytes: int = 0

    @property
    def fallbacks(self) -> int:
        """Storages that an operator needed and that no policy had brought back."""
        return self.fetched + self.cancelled

    def __add__(self, other: "SessionCounts") -> "SessionCounts":
        """The counts of both, added up."""
        return SessionCounts(**{name: getattr(self, name) + getattr(other, name) for name in _COUNTS})


_COUNTS = tuple(field.name for field in fields(SessionCounts))


def counts_of(iteration: core.SwapIteration) -> SessionCounts:
    """The engine's counts of an iteration as plain numbers."""
    counts = {name: int(getattr(iteration.counts, name)) for name in _COUNTS if name != "unmatched"}
    return SessionCounts(unmatched=iteration.unmatched, **counts)


@dataclass(frozen=True, kw_only=True)
class IterationSummary:
    """One iteration, from boundary to boundary.

    `stage` is the one in which it ran, `policy` the number of the policy that it executed, from 0 in the order of their
    making (its index in the report, until that leaves out the oldest), `recorded` whether in detail. `duration_us` is
    the device's time, None where it was not measured; `peak_bytes` is the device's, since the session began or was
    resumed, `host_peak_bytes` what was page-locked at once, idle blocks included.
    """

    number: int
    stage: str
    operators: int
    policy: int | None
    recorded: bool
    duration_us: float | None
    peak_bytes: int
    host_peak_bytes: int
    counts: SessionCounts
    backward: bool


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """One policy: who made it for which generation, what it promised, what it took, and whether it was kept.

    `objective_us` and `base_us` are the simulated time with and without swapping, on the limited information of Eq. 1.
    `mean_swaps` are those of iterations as large as the latest, where sizes vary, with the least number of passive ones
    that are left: `swaps` are of the largest.
    `duration_us` and `counts` are those of the iteration that executed it; None where none did, and `reason` says why.
    """

    choice: PolicyChoice
    generation: int
    objective_us: int | None = None
    base_us: int | None = None
    swaps: int = 0
    mean_swaps: float | None = None
    bytes: int = 0
    duration_us: float | None = None
    counts: SessionCounts | None = None
    kept: bool = False
    reason: str | None = None

    def __str__(self) -> str:
        """One line."""
        parts = [f"{self.choice}: {self.swaps} swaps of {show_bytes(self.bytes)}"]
        parts += [f"predicted {self.objective_us} us"] if self.objective_us is not None else []
        parts += [f"took {self.duration_us:.0f} us"] if self.duration_us is not None else []
        parts += ["kept"] if self.kept else []
        parts += [self.reason] if self.reason else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class SessionReport:
    """What a session has done so far.

    A generation is one pass of making policies, a regeneration one that a changed operator sequence caused; `returns`
    counts how often a kind of iteration came again, after one of another kind, whose policy was remembered.
    `unswapped_peak_bytes` is the peak that the program would have without swapping, reconstructed (SmartSwap, Figure
    3; of all kinds of iterations), and `unplanned_us` the time of an iteration, of the latest kind that got policies,
    while nothing but passive swaps kept it within the budget; both None before the first detailed record.
    `cost` is what swapping costs an iteration of the kind that ran last; None where nothing was swapped, or before it
    is known. `reserved_peak_bytes` is what the allocator held at most, None where it holds exact bytes, and
    `outside_bytes` what was taken of the device beside that when the report was asked for
    (`runtime.device.outside_bytes`), None on sim. `waits_under_lock` says how often this process has waited where an
    allocator holds its lock, which stops every thread that asks for memory: it must be 0. `left_out_bytes` found no
    room on the device when the session paused or closed, and are on the host. `policies` are the latest 1,000,
    `remarks` sentences about what did not go as hoped; of those that differ in numbers only, the first.
    """

    device: str
    budget_bytes: int
    stage: str
    iterations: int
    generations: int
    regenerations: int
    returns: int
    policies: tuple[PolicyResult, ...]
    counts: SessionCounts
    peak_bytes: int
    host_peak_bytes: int
    unswapped_peak_bytes: int | None
    unplanned_us: float | None
    remarks: tuple[str, ...]
    cost: SwapCost | None = None
    reserved_peak_bytes: int | None = None
    outside_bytes: int | None = None
    waits_under_lock: int = 0
    left_out_bytes: int = 0

    @property
    def within_budget(self) -> bool:
        """Whether no iteration's peak was above the budget, from when the session had come down to it.

        What the allocator held counts, where it holds segments.
        """
        held = self.peak_bytes if self.reserved_peak_bytes is None else self.reserved_peak_bytes
        return held <= self.budget_bytes

    def _cost_in_words(self) -> str:
        if self.cost is not None:
            return str(self.cost)
        return "nothing was swapped" if self.counts.swapped_out == 0 else "not known yet"

    def json(self) -> str:
        """All of it, as JSON."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        """Some lines for people."""
        counts = self.counts
        lines = [
            f"swap session on {self.device}: {self.iterations} iterations, now {self.stage}",
            f"  peak      {show_bytes(self.peak_bytes)} of a budget of {show_bytes(self.budget_bytes)}"
            f"{'' if self.within_budget else ': EXCEEDED'}",
            f"  unswapped {show_bytes(self.unswapped_peak_bytes)}",
            f"  host      {show_bytes(self.host_peak_bytes)} at most",
            f"  swaps     {counts.swapped_out} out, {counts.swapped_in} back ({counts.in_time} in time, "
            f"{counts.fallbacks} on demand), {counts.passive} of them passive",
            f"  cost      {self._cost_in_words()}",
            f"  policies  {self.generations} generations, {self.regenerations} of them because the operators changed, "
            f"{self.returns} returns to one",
        ]
        if self.reserved_peak_bytes is not None:
            outside = "no driver" if self.outside_bytes is None else f"{show_bytes(self.outside_bytes)} of others"
            lines.insert(2, f"  reserved  {show_bytes(self.reserved_peak_bytes)} by the allocator, outside: {outside}")
        lines += [f"    {'*' if policy.kept else ' '} {policy}" for policy in self.policies[-SHOWN:]]
        return "\n".join([*lines, *(f"  remark    {remark}" for remark in self.remarks)])


SHOWN = 10
"""Number of latest policies that are printed."""


def descent(budget_bytes: int, before_bytes: int, after_bytes: int, storages: int, *, again: bool) -> str:
    """What it took a session to come down to its budget when it began or, `again`, went on."""
    found = (
        f"the session {'went on' if again else 'began'} with {show_bytes(before_bytes)} in use, "
        f"{show_bytes(before_bytes - budget_bytes)} above its budget of {show_bytes(budget_bytes)}"
    )
    left = f"{storages} storages of {show_bytes(before_bytes - after_bytes)} were swapped out at once"
    if after_bytes <= budget_bytes:
        return f"{found}: {left}"
    return (
        f"{found}: {left if storages else 'nothing of it could leave'}, and the {show_bytes(after_bytes)} that stay "
        "are those that no swapping can move now: free some of them, or raise the budget"
    )


def too_small(budget_bytes: int, least_bytes: int | None, reason: str, asked: str) -> str:
    """What a session says of a refused request: `reason` in the allocator's words, `asked` in the engine's."""
    in_segments = "" if least_bytes is None else f" (at least {show_bytes(least_bytes)} in segments)"
    said = reason.partition("\n")[0]
    told = asked and (f"; {asked}" if least_bytes is None else f"\n{asked[0].upper()}{asked[1:]}.")
    return (
        f"the budget of {show_bytes(budget_bytes)} does not hold what this program needs at once{in_segments},"
        f" however much is swapped: raise the budget or lower the batch size ({said}){told}"
    )


def left_out(left_bytes: int, storages: int, used_bytes: int) -> str:
    """What a session that paused or closed says of what did not come back to a device that holds `used_bytes`."""
    return (
        f"the device had no room for {show_bytes(left_bytes)} ({storages} storages) beside {show_bytes(used_bytes)} "
        "in use when the session ended or paused: they are on the host still, and come back when they are used, if "
        "there is room then; free other tensors before, or keep the session open"
    )


def unseen(iterations: int, closed: bool) -> tuple[str, ...]:
    """What a session that has ended says where it saw no iteration."""
    if iterations > 0 or not closed:
        return ()
    return (
        "no optimizer stepped, so no iteration was seen: nothing was planned, and peaks between steps are not told",
    )
