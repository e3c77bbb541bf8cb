"""The exact meaning of a swap plan: design §4, ops (i)-(iv), as a fast forward recursion.

Every solver of this room measures its plans with it; the independent checker has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.ir.errors import InvalidProblem
from solvers.ir.swap import Swap, SwapPlan, SwapProblem

_REMEDY = "give a plan of this problem"

Choice = tuple[int, int]
"""(index of the tensor in the problem, op right before which its swap-in is issued)."""


@dataclass(frozen=True)
class Instance:
    """A problem as plain lists, indexed by op or by tensor, with what every evaluation needs computed once.

    `need[j]` is how many bytes must be absent during op j (0 where everything fits); `before[j]` the time of all ops
    before j; `busy` the ops at which memory is short, in order.
    """

    time: list[int]
    need: list[int]
    before: list[int]
    busy: list[int]
    size: list[int]
    first: list[int]
    last: list[int]
    out_us: list[int]
    in_us: list[int]

    @property
    def base(self) -> int:
        """Time of all ops: the objective with unlimited memory."""
        return self.before[-1]


@dataclass(frozen=True)
class Timeline:
    """What a plan does: `ready` and `start` of every op that was visited, and its transfers, indexed as the choices.

    `released[i]` is the op before which the block of choice i is free again, −1 where nothing ever asked.
    """

    makespan: int
    ready: dict[int, int]
    start: dict[int, int]
    out_end: list[int]
    in_end: list[int]
    released: list[int]


def instance(problem: SwapProblem) -> Instance:
    """The problem as plain lists."""
    time = [op.time_us for op in problem.ops]
    need = [max(0, use - problem.budget_bytes) for use in problem.memory_bytes]
    before = [0]
    for step in time:
        before.append(before[-1] + step)
    return Instance(
        time=time,
        need=need,
        before=before,
        busy=[op for op, missing in enumerate(need) if missing > 0],
        size=[tensor.bytes for tensor in problem.tensors],
        first=[tensor.last_forward_use for tensor in problem.tensors],
        last=[tensor.first_backward_use for tensor in problem.tensors],
        out_us=[problem.link.out_us(tensor.bytes) for tensor in problem.tensors],
        in_us=[problem.link.in_us(tensor.bytes) for tensor in problem.tensors],
    )


def least_budget(problem: SwapProblem) -> int:
    """The least feasible budget: at each op, what remains when every tensor between its uses is absent."""
    absent = [0] * (len(problem.ops) + 1)
    for tensor in problem.tensors:
        absent[tensor.last_forward_use + 1] += tensor.bytes
        absent[tensor.first_backward_use] -= tensor.bytes
    least = running = 0
    for use, change in zip(problem.memory_bytes, absent, strict=False):
        running += change
        least = max(least, use - running)
    return least


def evaluate(given: Instance, choices: Sequence[Choice]) -> Timeline | None:
    """Run the plan in list order; None where some op finds no time at which it fits."""
    by_first, by_issue, by_last = _group(given, choices)
    events = sorted({*given.busy, *by_first, *by_issue, *by_last})
    count = len(choices)
    out_end, in_end, released = [0] * count, [0] * count, [-1] * count
    ready: dict[int, int] = {}
    start: dict[int, int] = {}
    queue: list[int] = []
    done = absent = out_free = in_free = clock = 0
    previous = -1
    for op in events:
        now = clock + given.before[op] - given.before[previous + 1]
        issued = by_issue.get(op, ())
        for choice in issued:
            now = max(now, out_end[choice])
        while done < len(queue) and out_end[queue[done]] <= now:
            absent += given.size[choices[queue[done]][0]]
            released[queue[done]] = op
            done += 1
        for choice in issued:
            absent -= given.size[choices[choice][0]]
        while absent < given.need[op]:
            if done == len(queue):
                return None
            now = max(now, out_end[queue[done]])
            absent += given.size[choices[queue[done]][0]]
            released[queue[done]] = op
            done += 1
        ready[op] = now
        for choice in issued:
            in_free = in_end[choice] = max(in_free, now) + given.in_us[choices[choice][0]]
        for choice in by_last.get(op, ()):
            now = max(now, in_end[choice])
        start[op] = now
        clock = now + given.time[op]
        for choice in by_first.get(op, ()):
            out_free = out_end[choice] = max(out_free, clock) + given.out_us[choices[choice][0]]
            queue.append(choice)
        previous = op
    makespan = clock + given.before[-1] - given.before[previous + 1]
    return Timeline(makespan, ready, start, out_end, in_end, released)


def memory_waits(given: Instance, choices: Sequence[Choice]) -> list[int]:
    """The ops that a valid plan makes wait for memory, the longest wait first."""
    timeline = evaluate(given, choices)
    if timeline is None:
        return []
    waits: dict[int, int] = {}
    clock, previous = 0, -1
    for op, ready in timeline.ready.items():
        waits[op] = ready - clock - (given.before[op] - given.before[previous + 1])
        clock, previous = timeline.start[op] + given.time[op], op
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
