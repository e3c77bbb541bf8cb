"""The README's meaning of a swap plan, written again as plainly as possible, and the optimum by trying everything."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations, product

import msgspec

from solvers.ir import Solution, Status, SwapLink, SwapOp, SwapPlan, SwapProblem, SwapTensor
from solvers.swap.evaluate import least_budget

Listed = tuple[tuple[int, int], ...]
"""(tensor index, issue op) in list order."""


def meaning(problem: SwapProblem, plan: Listed) -> int | None:
    """The end of the last op, or None for an invalid plan; every quantity is recomputed from scratch at every op.

    All times are in nanoseconds where the link counts those; the end is rounded up to a microsecond.
    """
    unit = 1 if problem.link.latency_ns is None else 1000
    if not _host_holds(problem, [tensor for tensor, _ in plan]):
        return None
    out_end: dict[int, int] = {}
    in_end: dict[int, int] = {}
    out_lane = in_lane = clock = host = 0
    issue = dict(plan)
    for op, facts in enumerate(problem.ops):
        moments = sorted({clock, *(end for end in out_end.values() if end > clock)})
        ready = next((t for t in moments if _fits(problem, issue, out_end, op, t)), None)
        if ready is None:
            return None
        for tensor, at in plan:
            if at == op:
                host += problem.launch_us * unit
                begin = max(in_lane, ready, host)
                in_lane = in_end[tensor] = begin + _transfer(problem, tensor, problem.link.in_bytes_per_s)
        needed = [in_end[t] for t, _ in plan if problem.tensors[t].first_backward_use == op]
        host += facts.launch_us * unit
        tail = facts.time_us if facts.tail_us is None else facts.tail_us
        clock = max([ready, *needed]) + facts.time_us * unit
        if host + tail * unit > clock:
            clock = host + tail * unit
        if facts.host_waits and host < clock:
            host = clock
        for tensor, _ in plan:
            if problem.tensors[tensor].last_forward_use == op:
                host += problem.launch_us * unit
                begin = max(out_lane, clock, host)
                out_lane = out_end[tensor] = begin + _transfer(problem, tensor, problem.link.out_bytes_per_s)
    return (clock + unit - 1) // unit


def _transfer(problem: SwapProblem, tensor: int, bytes_per_s: int) -> int:
    size, link = problem.tensors[tensor].bytes, problem.link
    if link.latency_ns is None:
        return link.latency_us + (size * 10**6 + bytes_per_s - 1) // bytes_per_s
    return link.latency_ns + (size * 10**9 + bytes_per_s - 1) // bytes_per_s


def _fits(problem: SwapProblem, issue: dict[int, int], out_end: dict[int, int], op: int, moment: int) -> bool:
    if any(at == op and out_end[tensor] > moment for tensor, at in issue.items()):
        return False
    gone = [tensor for tensor, end in out_end.items() if end <= moment and issue[tensor] > op]
    return problem.memory_bytes[op] - sum(problem.tensors[t].bytes for t in gone) <= problem.budget_bytes


def host_need(problem: SwapProblem, swapped: Sequence[int]) -> int:
    """What the host holds at most: after each op, everything that has left and whose next op has not begun."""
    moments = []
    for op in range(len(problem.ops)):
        there = [problem.tensors[t] for t in swapped]
        there = [t for t in there if t.last_forward_use <= op and not t.first_backward_use <= op]
        moments.append(Counter(_host_block(problem, tensor.bytes) for tensor in there))
    if problem.host_rounding == "exact":
        return max(moment_bytes(moment) for moment in moments)
    sizes = {size for moment in moments for size in moment}
    return sum(size * max(moment[size] for moment in moments) for size in sizes)


def moment_bytes(blocks: Counter[int]) -> int:
    """The bytes of that many blocks of each size."""
    return sum(size * count for size, count in blocks.items())


def _host_block(problem: SwapProblem, size: int) -> int:
    if problem.host_rounding == "exact" or size == 0:
        return size
    return next(1 << power for power in range(60) if 1 << power >= size)


def _host_holds(problem: SwapProblem, swapped: Sequence[int]) -> bool:
    return problem.host_budget_bytes is None or host_need(problem, swapped) <= problem.host_budget_bytes


def least_host(problem: SwapProblem) -> int | None:
    """The least host memory with which some plan keeps the device's budget; None where none does with any."""
    unlimited = msgspec.structs.replace(problem, host_budget_bytes=None)
    needs = (host_need(problem, [t for t, _ in plan]) for plan in all_plans(problem) if meaning(unlimited, plan))
    return min(needs, default=None)


def hosted(problem: SwapProblem, seed: int) -> SwapProblem:
    """The same problem beside a host of about as much memory as it needs, whose blocks are rounded or not."""
    source = random.Random(seed)
    rounding = source.choice(("exact", "power-of-two"))
    problem = msgspec.structs.replace(problem, host_rounding=rounding)
    needed = least_host(problem)
    everything = host_need(problem, range(len(problem.tensors)))
    budget = source.randint(max(0, (needed or 0) - 2), max(needed or 0, everything))
    return msgspec.structs.replace(problem, host_budget_bytes=budget)


def all_plans(problem: SwapProblem) -> Iterator[Listed]:
    """Every subset, every issue op, every list order."""
    options = [(None, *range(t.last_forward_use + 1, t.first_backward_use + 1)) for t in problem.tensors]
    for issues in product(*options):
        yield from permutations([(tensor, at) for tensor, at in enumerate(issues) if at is not None])


def optimum(problem: SwapProblem) -> int | None:
    """The least objective of any plan; None where no plan is valid."""
    return min(
        (end for end in (meaning(problem, plan) for plan in all_plans(problem)) if end is not None), default=None
    )


def launched(problem: SwapProblem, seed: int) -> SwapProblem:
    """The same problem on a host whose launches take shorter than ops, as long, or longer; for some ops it waits."""
    source = random.Random(seed)
    longest = source.choice((2, 5, 9))
    ops = []
    for op in problem.ops:
        time = source.choice((0, op.time_us, op.time_us))
        tail = source.choice((None, source.randint(0, time)))
        launch = source.randint(0, longest)
        waits = source.random() < 0.15
        ops.append(msgspec.structs.replace(op, time_us=time, launch_us=launch, tail_us=tail, host_waits=waits))
    link, latency = problem.link, source.choice((None, problem.link.latency_us * 1000))
    if latency is not None:
        rates = {way: getattr(link, way) + source.randint(1, 400_000) for way in ("out_bytes_per_s", "in_bytes_per_s")}
        link = msgspec.structs.replace(link, latency_ns=latency, **rates)
    return msgspec.structs.replace(problem, ops=tuple(ops), link=link, launch_us=source.randint(1, 4))


def random_problem(seed: int, max_ops: int = 7, max_tensors: int = 3) -> SwapProblem:
    """A tiny instance with contention: forward ops that leave tensors, backward ops that read them, a tight budget."""
    source = random.Random(seed)
    count = source.randint(5, max_ops)
    turn = source.randint(2, count - 2)
    tensors = []
    for number in range(source.randint(1, max_tensors)):
        first = source.randint(0, turn - 1)
        last = source.randint(turn + 1, count - 1)
        tensors.append(
            SwapTensor(id=f"t{number}", bytes=source.randint(1, 9), last_forward_use=first, first_backward_use=last)
        )
    spans = [sum(t.bytes for t in tensors if t.last_forward_use <= op <= t.first_backward_use) for op in range(count)]
    memory = [span + source.randint(0, 4) for span in spans]
    absent = [sum(t.bytes for t in tensors if t.last_forward_use < op < t.first_backward_use) for op in range(count)]
    least = max(use - away for use, away in zip(memory, absent, strict=True))
    rate = source.choice((1, 2, 3)) * 1_000_000
    return SwapProblem(
        name=f"random-{seed}",
        budget_bytes=max(0, source.randint(least, max(least, max(memory) - 1)) - (seed % 10 == 0)),
        ops=tuple(
            SwapOp(name=f"op{op}", time_us=source.randint(1, 6), phase="forward" if op <= turn else "backward")
            for op in range(count)
        ),
        memory_bytes=tuple(memory),
        tensors=tuple(tensors),
        link=SwapLink(out_bytes_per_s=rate, in_bytes_per_s=rate, latency_us=source.randint(0, 2)),
    )


def assert_answered(problem: SwapProblem, answer: Solution[SwapPlan]) -> None:
    """The answer is a plan of the objective that it states, or says rightly that there is none."""
    if answer.status is Status.INFEASIBLE:
        assert optimum(problem) is None
        assert answer.least_budget_bytes == least_budget(problem) > problem.budget_bytes
        return
    assert answer.plan is not None, answer.reason
    index = {tensor.id: number for number, tensor in enumerate(problem.tensors)}
    assert (
        meaning(problem, tuple((index[swap.tensor], swap.swap_in_at) for swap in answer.plan.swaps)) == answer.objective
    )
