"""Judge of `swap` decisions: the meaning (i)-(iv) of design §4, followed op by op."""

from solvers.check.verdict import Verdict
from solvers.ir.swap import Swap, SwapPlan, SwapProblem, SwapTensor


def judge_swap(problem: SwapProblem, plan: SwapPlan) -> Verdict:
    """The decision's violations, and the end of the last op where it has none."""
    violations = _form(problem, plan)
    if not violations:
        violations = _memory(problem, _pairs(problem, plan))
    if violations:
        return Verdict(tuple(violations))
    return Verdict((), _end_of_last_op(problem, _pairs(problem, plan)))


def base_us(problem: SwapProblem) -> int:
    """The objective with unlimited memory."""
    return sum(op.time_us for op in problem.ops)


def least_budget_bytes(problem: SwapProblem) -> int:
    """The least feasible budget: every tensor absent whenever it may be."""
    needed = (
        memory - sum(t.bytes for t in problem.tensors if t.last_forward_use < j < t.first_backward_use)
        for j, memory in enumerate(problem.memory_bytes)
    )
    return max(0, *needed)


def _pairs(problem: SwapProblem, plan: SwapPlan) -> list[tuple[Swap, SwapTensor]]:
    tensors = {tensor.id: tensor for tensor in problem.tensors}
    return [(swap, tensors[swap.tensor]) for swap in plan.swaps]


def _form(problem: SwapProblem, plan: SwapPlan) -> list[str]:
    """Known tensors, each at most once, a < k ≤ b."""
    tensors = {tensor.id: tensor for tensor in problem.tensors}
    violations = []
    seen = set()
    for number, swap in enumerate(plan.swaps):
        place = f"swaps[{number}]: tensor {swap.tensor!r}"
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
    """(i) has a time for every op unless even the absence of all tensors with a < j < k is too little for op j."""
    violations = []
    for j, memory in enumerate(problem.memory_bytes):
        least = memory - sum(t.bytes for swap, t in pairs if t.last_forward_use < j < swap.swap_in_at)
        if least > problem.budget_bytes:
            place = f"op {j} ({problem.ops[j].name!r})"
            violations.append(f"{place} needs {least} bytes when all is swapped out, budget {problem.budget_bytes}")
    return violations


def _end_of_last_op(problem: SwapProblem, pairs: list[tuple[Swap, SwapTensor]]) -> int:
    out_end: dict[int, int] = {}  # by position in the decision's list
    in_end: dict[int, int] = {}
    out_free = in_free = end = 0
    for j, op in enumerate(problem.ops):
        ready = _ready(problem, pairs, out_end, j, end)  # (i)
        for number, (swap, tensor) in enumerate(pairs):  # (ii), FIFO in list order
            if swap.swap_in_at == j:
                in_free = in_end[number] = max(in_free, ready) + problem.link.in_us(tensor.bytes)
        arrived = [in_end[number] for number, (_, tensor) in enumerate(pairs) if tensor.first_backward_use == j]
        end = max([ready, *arrived]) + op.time_us  # (iii)
        for number, (_, tensor) in enumerate(pairs):  # (iv), FIFO in list order
            if tensor.last_forward_use == j:
                out_free = out_end[number] = max(out_free, end) + problem.link.out_us(tensor.bytes)
    return end


def _ready(
    problem: SwapProblem, pairs: list[tuple[Swap, SwapTensor]], out_end: dict[int, int], j: int, before: int
) -> int:
    """r_j: the earliest time ≥ `before` at which returning tensors have left and op j's memory fits."""
    ready = max([before, *(out_end[n] for n, (swap, _) in enumerate(pairs) if swap.swap_in_at == j)])
    leaving = sorted((out_end[n], pairs[n][1].bytes) for n in out_end if pairs[n][0].swap_in_at > j)
    level = problem.memory_bytes[j]
    for ended, size in leaving:
        if ended > ready and level <= problem.budget_bytes:
            break
        ready = max(ready, ended)
        level -= size
    return ready
