"""Random small instances of every kind, shared by all tests: valid by construction, shrinking towards the plainest."""

from typing import Any

from hypothesis import strategies as st

from solvers.ir import Swap, SwapLink, SwapOp, SwapPlan, SwapProblem, SwapTensor
from solvers.ir.graph import Phase

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
"""Any text that UTF-8 holds, spaces, commas, quotes and line ends included."""

tensor_ids = st.one_of(st.integers(0, 99), names)


@st.composite
def swap_problems(draw: st.DrawFn, max_ops: int = 6, max_tensors: int = 4) -> SwapProblem:
    """Two to `max_ops` ops; the memory contains each tensor between its uses; budgets from too small to ample.

    The link moves 1 to 4 bytes per microsecond, so that transfers of 0 to 9 bytes and ops of 1 to 9 us contend.
    """
    count = draw(st.integers(2, max_ops))
    tensors = draw(_swap_tensors(count, max_tensors))
    extra = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    memory = tuple(
        extra[j] + sum(t.bytes for t in tensors if t.last_forward_use <= j <= t.first_backward_use)
        for j in range(count)
    )
    needed = max(
        memory[j] - sum(t.bytes for t in tensors if t.last_forward_use < j < t.first_backward_use) for j in range(count)
    )
    return SwapProblem(
        name=draw(names),
        budget_bytes=max(0, draw(st.integers(needed - 2, max(memory) + 1))),
        ops=tuple(draw(st.lists(_swap_ops(), min_size=count, max_size=count))),
        memory_bytes=memory,
        tensors=tensors,
        link=draw(_swap_links()),
    )


def _swap_ops() -> st.SearchStrategy[SwapOp]:
    phases: list[Phase] = ["forward", "backward", "optimizer"]
    return st.builds(SwapOp, name=names, time_us=st.integers(1, 9), phase=st.sampled_from(phases))


def _swap_links() -> st.SearchStrategy[SwapLink]:
    rates = st.integers(1, 4).map(lambda rate: rate * 1_000_000)
    return st.builds(SwapLink, out_bytes_per_s=rates, in_bytes_per_s=rates, latency_us=st.integers(0, 2))


@st.composite
def _swap_tensors(draw: st.DrawFn, ops: int, max_tensors: int) -> tuple[SwapTensor, ...]:
    ids: list[Any] = draw(st.lists(tensor_ids, max_size=max_tensors, unique=True))
    tensors = []
    for name in ids:
        a = draw(st.integers(0, ops - 2))
        b = draw(st.integers(a + 1, ops - 1))
        tensors.append(SwapTensor(id=name, bytes=draw(st.integers(0, 9)), last_forward_use=a, first_backward_use=b))
    return tuple(tensors)


@st.composite
def swap_plans(draw: st.DrawFn, problem: SwapProblem) -> SwapPlan:
    """A well-formed decision for the problem, in any list order; it may still exceed the budget."""
    chosen = draw(st.permutations([t for t in problem.tensors if draw(st.booleans())]))
    return SwapPlan(
        swaps=tuple(
            Swap(tensor=t.id, swap_in_at=draw(st.integers(t.last_forward_use + 1, t.first_backward_use)))
            for t in chosen
        )
    )
