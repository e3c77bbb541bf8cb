"""Random `swap` problems and plans."""

from typing import Any

from hypothesis import strategies as st

from solvers.ir import (
    Swap,
    SwapLink,
    SwapOp,
    SwapPlan,
    SwapProblem,
    SwapTensor,
)
from solvers.ir.graph import Phase
from tests.strategies.common import names, tensor_ids


@st.composite
def swap_problems(draw: st.DrawFn, max_ops: int = 6, max_tensors: int = 4, plain: bool = False) -> SwapProblem:
    """Two to `max_ops` ops; the memory contains each tensor between its uses; budgets from too small to ample.

    The link moves 1 to 4 bytes per microsecond, so that transfers of 0 to 9 bytes and ops of 1 to 9 us contend. Half of
    them count launches, of up to 9 us an op and 3 us a transfer, and half count transfers in nanoseconds; `plain` ones
    do neither.
    """
    count = draw(st.integers(2, max_ops))
    launch_us = 0 if plain else draw(st.just(0) | st.integers(1, 3))
    ops = _launched_swap_ops() if launch_us else _swap_ops()
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
        ops=tuple(draw(st.lists(ops, min_size=count, max_size=count))),
        memory_bytes=memory,
        tensors=tensors,
        link=draw(_swap_links(plain)),
        launch_us=launch_us,
    )


@st.composite
def _launched_swap_ops(draw: st.DrawFn) -> SwapOp:
    phases: list[Phase] = ["forward", "backward", "optimizer"]
    time = draw(st.integers(0, 9))
    return SwapOp(
        name=draw(names),
        time_us=time,
        phase=draw(st.sampled_from(phases)),
        launch_us=draw(st.integers(0, 9)),
        tail_us=draw(st.none() | st.integers(0, time)),
        host_waits=draw(st.booleans()),
    )


def _swap_ops() -> st.SearchStrategy[SwapOp]:
    phases: list[Phase] = ["forward", "backward", "optimizer"]
    return st.builds(SwapOp, name=names, time_us=st.integers(1, 9), phase=st.sampled_from(phases))


def _swap_links(plain: bool) -> st.SearchStrategy[SwapLink]:
    rates = st.integers(1, 4).map(lambda rate: rate * 1_000_000)
    whole = st.builds(SwapLink, out_bytes_per_s=rates, in_bytes_per_s=rates, latency_us=st.integers(0, 2))
    return (
        whole
        if plain
        else whole | st.builds(_fine_swap_link, st.integers(900_000, 4_000_000), rates, st.integers(0, 2000))
    )


def _fine_swap_link(out_bytes_per_s: int, in_bytes_per_s: int, latency_ns: int) -> SwapLink:
    """A link that counts nanoseconds."""
    whole = -(-latency_ns // 1000)
    return SwapLink(
        out_bytes_per_s=out_bytes_per_s, in_bytes_per_s=in_bytes_per_s, latency_us=whole, latency_ns=latency_ns
    )


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
