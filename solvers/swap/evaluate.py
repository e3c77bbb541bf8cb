"""The exact meaning of a swap plan (README, The problem and Launching) as a fast forward recursion.

Every solver of this room measures its plans with it; the independent checker has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from solvers.ir.errors import InvalidProblem
from solvers.ir.swap import Swap, SwapPlan, SwapProblem
from solvers.swap.host import HostRoom, host_room
from solvers.swap.launches import Launches, launches_of, unswapped_us

_REMEDY = "give a plan of this problem"

Choice = tuple[int, int]
"""(index of the tensor in the problem, op right before which its swap-in is issued)."""


@dataclass(frozen=True)
class Instance:
    """A problem as plain lists, indexed by op or by tensor, with what every evaluation needs computed once.

    Times, here and in all that is made of it, are in ticks, `ticks` of them to a microsecond: 1 unless the link counts
    nanoseconds.
    `need[j]` is how many bytes must be absent during op j (0 where everything fits); `before[j]` the device's time of
    all ops before j; `busy` the ops at which memory is short, in order; `launches` what launching costs (None:
    nothing); `unswapped[j]` when op j may begin in a step without swaps: `before[j]`, where launching costs nothing;
    `host` what swapped tensors may take of the host (None: whatever they take).
    """

    time: list[int]
    need: list[int]
    before: list[int]
    busy: list[int]
    size: list[int]
    first: list[int]
    last: list[int]
    out_time: list[int]
    in_time: list[int]
    ticks: int
    launches: Launches | None
    unswapped: list[int]
    host: HostRoom | None = None

    @property
    def base(self) -> int:
        """The objective with unlimited memory: the time of all ops, launches included."""
        return self.unswapped[-1]

    def whole_us(self, ticks: int) -> int:
        """A time in microseconds, rounded up: objectives are whole."""
        return -(-ticks // self.ticks)


@dataclass(frozen=True)
class Timeline:
    """What a plan does: the ops that were visited, and its transfers, indexed as the choices.

    `free` is when the compute lane and the host had come to the op, `ready` when memory and lane were there, `start`
    when what it reads was, too. `released[i]` is the op before which the block of choice i is free again, −1 where
    nothing ever asked.
    """

    makespan: int
    free: dict[int, int]
    ready: dict[int, int]
    start: dict[int, int]
    out_end: list[int]
    in_end: list[int]
    released: list[int]


def instance(problem: SwapProblem) -> Instance:
    """The problem as plain lists."""
    ticks = problem.link.ticks
    time = [op.time_us * ticks for op in problem.ops]
    need = [max(0, use - problem.budget_bytes) for use in problem.memory_bytes]
    before, launches = [0, *accumulate(time)], launches_of(problem)
    return Instance(
        time=time,
        need=need,
        before=before,
        busy=[op for op, missing in enumerate(need) if missing > 0],
        size=[tensor.bytes for tensor in problem.tensors],
        first=[tensor.last_forward_use for tensor in problem.tensors],
        last=[tensor.first_backward_use for tensor in problem.tensors],
        out_time=[problem.link.out_ticks(tensor.bytes) for tensor in problem.tensors],
        in_time=[problem.link.in_ticks(tensor.bytes) for tensor in problem.tensors],
        ticks=ticks,
        launches=launches,
        unswapped=before if launches is None else [end * ticks for end in unswapped_us(problem.ops)],
        host=host_room(problem),
    )


def least_budget(problem: SwapProblem, of_host: bool = True) -> int:
    """The least feasible budget: at each op, what remains when every tensor between its uses is absent.

    Where the host is limited, a lower bound: no more is absent than the host holds. Without `of_host` it is not looked
    at.
    """
    host = problem.host_budget_bytes if of_host else None
    absent = [0] * (len(problem.ops) + 1)
    for tensor in problem.tensors:
        absent[tensor.last_forward_use + 1] += tensor.bytes
        absent[tensor.first_backward_use] -= tensor.bytes
    least = running = 0
    for use, change in zip(problem.memory_bytes, absent, strict=False):
        running += change
        least = max(least, use - (running if host is None else min(running, host)))
    return least


def evaluate(given: Instance, choices: Sequence[Choice]) -> Timeline | None:
    """Run the plan in list order; None where some op finds no time at which it fits, or the host has no room."""
    if given.host is not None and not given.host.holds([tensor for tensor, _ in choices]):
        return None
    by_first, by_issue, by_last = _group(given, choices)
    launches, before, need, size, in_time = given.launches, given.before, given.need, given.size, given.in_time
    waiting, issuing = (frozenset[int](), 0) if launches is None else (launches.waiting, launches.transfer)
    events = sorted({*given.busy, *by_first, *by_issue, *by_last, *waiting})
    out_end, in_end, released = [0] * len(choices), [0] * len(choices), [-1] * len(choices)
    free, ready, start = dict[int, int](), dict[int, int](), dict[int, int]()
    queue: list[int] = []
    done = absent = out_free = in_free = clock = host = 0
    previous = -1
    for op in events:
        if launches is None:
            now = clock + before[op] - before[previous + 1]
        else:
            now, host = launches.advance(previous + 1, op, clock, host)
        free[op] = now if now > host else host
        issued = by_issue.get(op, ())
        for choice in issued:
            now = max(now, out_end[choice])
            absent -= size[choices[choice][0]]
        while done < len(queue) and (out_end[queue[done]] <= now or absent < need[op]):
            now = max(now, out_end[queue[done]])
            absent += size[choices[queue[done]][0]]
            released[queue[done]] = op
            done += 1
        if absent < need[op]:
            return None
        ready[op] = now
        for choice in issued:
            host += issuing
            in_free = in_end[choice] = max(in_free, now if now > host else host) + in_time[choices[choice][0]]
        for choice in by_last.get(op, ()):
            now = max(now, in_end[choice])
        start[op] = now
        clock = now + given.time[op]
        if launches is not None:
            host += launches.host[op]
            clock = max(clock, host + launches.tail[op])
            host = max(host, clock) if op in waiting else host
        for choice in by_first.get(op, ()):
            host += issuing
            begin = clock if clock > host else host
            out_free = out_end[choice] = max(out_free, begin) + given.out_time[choices[choice][0]]
            queue.append(choice)
        previous = op
    if launches is None:
        makespan = clock + before[-1] - before[previous + 1]
    else:
        makespan, _ = launches.advance(previous + 1, len(given.time), clock, host)
    return Timeline(makespan, free, ready, start, out_end, in_end, released)


def memory_waits(given: Instance, choices: Sequence[Choice]) -> list[int]:
    """The ops that a valid plan makes wait for memory, the longest wait first."""
    timeline = evaluate(given, choices)
    if timeline is None:
        return []
    waits = {op: ready - timeline.free[op] for op, ready in timeline.ready.items()}
    return sorted((op for op, wait in waits.items() if wait > 0), key=lambda op: -waits[op])


def _group(given: Instance, choices: Sequence[Choice]) -> tuple[dict[int, list[int]], ...]:
    by_first: dict[int, list[int]] = {}
    by_issue: dict[int, list[int]] = {}
    by_last: dict[int, list[int]] = {}
    for number, (tensor, issue) in enumerate(choices):
        by_first.setdefault(given.first[tensor], []).append(number)
        by_issue.setdefault(issue, []).append(number)
        by_last.setdefault(given.last[tensor], []).append(number)
    return by_first, by_issue, by_last


def plan_of(problem: SwapProblem, choices: Sequence[Choice]) -> SwapPlan:
    """The choices as a decision."""
    return SwapPlan(swaps=tuple(Swap(tensor=problem.tensors[tensor].id, swap_in_at=issue) for tensor, issue in choices))


def choices_of(problem: SwapProblem, plan: SwapPlan) -> list[Choice]:
    """A decision as choices; raises `InvalidProblem` where it names foreign tensors, one twice, or a < k ≤ b fails."""
    index = {tensor.id: number for number, tensor in enumerate(problem.tensors)}
    choices: dict[int, int] = {}
    for swap in plan.swaps:
        number = index.get(swap.tensor)
        if number is None:
            raise InvalidProblem(f"the plan swaps tensor {swap.tensor!r}, which the problem lacks: {_REMEDY}")
        if number in choices:
            raise InvalidProblem(f"the plan swaps tensor {swap.tensor!r} twice: {_REMEDY}")
        first, last = problem.tensors[number].last_forward_use, problem.tensors[number].first_backward_use
        if not first < swap.swap_in_at <= last:
            place = f"{swap.swap_in_at}, outside {first + 1}…{last}"
            raise InvalidProblem(f"the plan has swap_in_at {place}, for tensor {swap.tensor!r}: {_REMEDY}")
        choices[number] = swap.swap_in_at
    return list(choices.items())
