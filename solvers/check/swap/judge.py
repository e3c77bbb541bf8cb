"""Judge of `swap` decisions: the rules of formats.md 3.1 to 3.10, followed op by op."""

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate

from solvers.check.verdict import Verdict
from solvers.ir.sentences import quoted
from solvers.ir.swap import Swap, SwapLink, SwapPlan, SwapProblem, SwapTensor


def judge_swap(problem: SwapProblem, plan: SwapPlan) -> Verdict:
    """The decision's violations, and the end of the last op where it has none."""
    violations = _form(problem, plan)
    if not violations:
        pairs = _pairs(problem, plan)
        violations = _memory(problem, pairs) + host_violations(problem, [tensor for _, tensor in pairs])
    if violations:
        return Verdict(tuple(violations))
    return Verdict((), _end_us(problem, _pairs(problem, plan)))


def base_us(problem: SwapProblem) -> int:
    """The objective with unlimited memory: every op as soon as the device and the host have come to it."""
    return _end_us(problem, [])


def least_budget_bytes(problem: SwapProblem) -> int:
    """The least feasible budget: every tensor absent whenever it may be."""
    spans = [(tensor.last_forward_use, tensor.first_backward_use, tensor.bytes) for tensor in problem.tensors]
    absent = _absent(len(problem.ops), spans)
    return max(0, *(memory - gone for memory, gone in zip(problem.memory_bytes, absent, strict=True)))


def known_least_budget(problem: SwapProblem) -> tuple[int, int]:
    """At least and at most what the least feasible budget is.

    It has a closed form but where the host is limited: there no more can be absent than the host holds, and with all
    the memory that the step may use nothing has to be.
    """
    least = least_budget_bytes(problem)
    if problem.host_budget_bytes is None or not host_violations(problem, problem.tensors):
        return least, least
    return max(least, max(problem.memory_bytes) - problem.host_budget_bytes), max(problem.memory_bytes)


def is_feasible(problem: SwapProblem) -> bool:
    """Whether some decision surely keeps the budget.

    That of all tensors does if any does, where the host holds them; else those that are left when each that is not
    needed is taken away, from the smallest and from the largest on, may do.
    """
    if least_budget_bytes(problem) > problem.budget_bytes:
        return False
    if not host_violations(problem, problem.tensors):
        return True
    by_size = sorted(problem.tensors, key=lambda tensor: tensor.bytes)
    return any(not host_violations(problem, _needed(problem, order)) for order in (by_size, by_size[::-1]))


def _needed(problem: SwapProblem, order: Sequence[SwapTensor]) -> list[SwapTensor]:
    """What is left of all tensors when they are taken away in that order, each where the rest keeps the budget."""
    kept = list(order)
    spans = [(tensor.last_forward_use, tensor.first_backward_use, tensor.bytes) for tensor in order]
    absent = _absent(len(problem.ops), spans)
    for tensor in order:
        between = range(tensor.last_forward_use + 1, tensor.first_backward_use)
        if all(problem.memory_bytes[j] - absent[j] + tensor.bytes <= problem.budget_bytes for j in between):
            kept.remove(tensor)
            for j in between:
                absent[j] -= tensor.bytes
    return kept


def host_violations(problem: SwapProblem, swapped: Iterable[SwapTensor]) -> list[str]:
    """3.10: each swapped tensor is on the host from the end of op a until op b begins."""
    budget, rounded = problem.host_budget_bytes, problem.host_rounding == "power-of-two"
    if budget is None:
        return []
    held: dict[int, list[int]] = {}  # by block size where blocks are of powers of two, else all as one
    for tensor in swapped:
        size = _next_power_of_two(tensor.bytes) if rounded else tensor.bytes
        after = held.setdefault(size if rounded else 0, [0] * len(problem.ops))
        for j in range(tensor.last_forward_use, tensor.first_backward_use):
            after[j] += size
    need = sum(max(after) for after in held.values())
    if need <= budget:
        return []
    blocks = ", in blocks of powers of two" if rounded else ""
    return [f"the host holds {need} bytes of swapped tensors{blocks}, host_budget_bytes {budget}"]


def _next_power_of_two(size: int) -> int:
    power = 1
    while power < size:
        power *= 2
    return power if size else 0


def _absent(ops: int, spans: Iterable[tuple[int, int, int]]) -> list[int]:
    """At each op j the bytes of the spans (a, k, bytes), a < k, with a < j < k."""
    change = [0] * (ops + 1)
    for after, before, size in spans:
        change[after + 1] += size
        change[before] -= size
    return list(accumulate(change))[:ops]


def _pairs(problem: SwapProblem, plan: SwapPlan) -> list[tuple[Swap, SwapTensor]]:
    tensors = {tensor.id: tensor for tensor in problem.tensors}
    return [(swap, tensors[swap.tensor]) for swap in plan.swaps]


def _form(problem: SwapProblem, plan: SwapPlan) -> list[str]:
    """Known tensors, each at most once, a < k ≤ b."""
    tensors = {tensor.id: tensor for tensor in problem.tensors}
    violations = []
    seen = set()
    for number, swap in enumerate(plan.swaps):
        place = f"swaps[{number}]: tensor {quoted(swap.tensor)}"
        tensor = tensors.get(swap.tensor)
        if tensor is None:
            violations.append(f"{place} is not one of the problem's {len(tensors)} tensors")
        elif swap.tensor in seen:
            violations.append(f"{place} is swapped a second time, but a step swaps a tensor at most once")
        elif not tensor.last_forward_use < swap.swap_in_at <= tensor.first_backward_use:
            first, last = tensor.last_forward_use + 1, tensor.first_backward_use
            violations.append(f"{place} has swap_in_at {swap.swap_in_at}, outside {first}…{last}")
        seen.add(swap.tensor)
    return violations


def _memory(problem: SwapProblem, pairs: list[tuple[Swap, SwapTensor]]) -> list[str]:
    """3.1 has a time for every op unless even the absence of all tensors with a < j < k is too little for op j."""
    violations = []
    absent = _absent(len(problem.ops), [(t.last_forward_use, swap.swap_in_at, t.bytes) for swap, t in pairs])
    for j, memory in enumerate(problem.memory_bytes):
        least = memory - absent[j]
        if least > problem.budget_bytes:
            place = f"op {j} ({quoted(problem.ops[j].name)})"
            violations.append(f"{place} needs {least} bytes when all is swapped out, budget {problem.budget_bytes}")
    return violations


def _end_us(problem: SwapProblem, pairs: list[tuple[Swap, SwapTensor]]) -> int:
    """The end of the last op, rounded up where the link counts nanoseconds."""
    return math.ceil(Fraction(_end_of_last_op(problem, pairs), 1 if problem.link.latency_ns is None else 1000))


def _end_of_last_op(problem: SwapProblem, pairs: list[tuple[Swap, SwapTensor]]) -> int:
    """In microseconds, or in nanoseconds where the link counts those."""
    unit = 1 if problem.link.latency_ns is None else 1000
    issued, used, left = _by_op(pairs)
    out_end: dict[int, int] = {}  # by position in the decision's list
    in_end: dict[int, int] = {}
    leaving: deque[int] = deque()  # positions of swap-outs that may not have ended, in the order of their ends
    away: dict[int, int] = {}  # bytes of those that have, by position, until they return
    out_free = in_free = end = gone = host = 0
    for j, op in enumerate(problem.ops):
        ready = max([end, *(out_end[number] for number in issued[j])])  # 3.1: what returns has left, …
        gone -= sum(away.pop(number, 0) for number in issued[j])
        while leaving and (out_end[leaving[0]] <= ready or problem.memory_bytes[j] - gone > problem.budget_bytes):
            number = leaving.popleft()  # … and memory fits
            ready = max(ready, out_end[number])
            if pairs[number][0].swap_in_at > j:
                away[number] = pairs[number][1].bytes
                gone += away[number]
        for number in issued[j]:  # 3.2, FIFO in list order, each when the host has issued it
            host += problem.launch_us * unit
            time = _transfer(problem.link, pairs[number][1].bytes, problem.link.in_bytes_per_s)
            in_free = in_end[number] = max(in_free, ready, host) + time
        host += op.launch_us * unit
        run = max([ready, *(in_end[number] for number in used[j])]) + op.time_us * unit
        end = max(run, host + (op.time_us if op.tail_us is None else op.tail_us) * unit)  # 3.3
        host = max(host, end) if op.host_waits else host
        for number in left[j]:  # 3.4, FIFO in list order
            host += problem.launch_us * unit
            time = _transfer(problem.link, pairs[number][1].bytes, problem.link.out_bytes_per_s)
            out_free = out_end[number] = max(out_free, end, host) + time
            leaving.append(number)
    return end


def _transfer(link: SwapLink, size: int, bytes_per_s: int) -> int:
    if link.latency_ns is None:
        return link.latency_us + math.ceil(Fraction(size * 10**6, bytes_per_s))
    return link.latency_ns + math.ceil(Fraction(size * 10**9, bytes_per_s))


def _by_op(pairs: list[tuple[Swap, SwapTensor]]) -> tuple[dict[int, list[int]], ...]:
    """The list positions of the swaps by the op of their swap-in, first backward use and last forward use."""
    issued, used, left = (defaultdict(list) for _ in range(3))
    for number, (swap, tensor) in enumerate(pairs):
        issued[swap.swap_in_at].append(number)
        used[tensor.first_backward_use].append(number)
        left[tensor.last_forward_use].append(number)
    return issued, used, left
