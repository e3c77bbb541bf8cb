"""Ops that no swap helps ask nothing of a plan."""

from msgspec.structs import replace

from solvers.swap.make import make_swap_problem
from solvers.timeline.reach import within_reach
from tests.solvers.timeline.test_shares import MACHINE, SIZES, STATIC, stack


def test_only_ops_that_no_swap_helps_are_brought_to_the_budget() -> None:
    graph = stack(SIZES)
    last = len(graph.ops) - 1
    held = list(graph.memory_bytes)
    held[0] = held[last] = 10 * sum(SIZES)  # before any has left, and once all are back
    graph = replace(graph, memory_bytes=tuple(held))
    reached = within_reach(graph, make_swap_problem(graph, MACHINE, STATIC))
    assert (reached.memory_bytes[0], reached.memory_bytes[last]) == (STATIC, STATIC)
    assert reached.memory_bytes[1 : last - 1] == graph.memory_bytes[1 : last - 1]
    assert within_reach(graph, make_swap_problem(graph, MACHINE, 20 * sum(SIZES))) == graph
