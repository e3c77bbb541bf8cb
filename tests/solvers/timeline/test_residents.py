"""The optimizer's states wait from the step's begin until it comes, and may leave meanwhile."""

from msgspec.structs import replace

from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.planner import planner
from solvers.swap.make import make_swap_problem
from solvers.timeline.residents import residents_leaving
from solvers.timeline.shares import least_shares
from tests.solvers.timeline.test_shares import MACHINE, SIZES, STATIC, stack

STATE = 65536


def trained(sizes: list[int] = SIZES) -> OpGraph:
    """The stack, and an optimizer with two states, of which it has one alone, and a third that it makes anew."""
    graph = stack(sizes)
    update = len(graph.ops)
    states = [Tensor(id=100 + place, bytes=STATE, uses=(update + place,), kind="optimizer") for place in range(2)]
    made = Tensor(id=102, bytes=STATE, born=update, uses=(update + 1,), kind="optimizer")
    return replace(
        graph,
        ops=(*graph.ops, *(Op(name=f"u{place}", phase="optimizer", time_us=100) for place in range(2))),
        tensors=(*graph.tensors, *states, made),
        memory_bytes=tuple(held + 2 * STATE for held in (*graph.memory_bytes, STATIC, STATIC)),
    )


def test_only_what_waits_through_the_step_may_leave() -> None:
    graph = trained()
    weights = [
        Tensor(id=200, bytes=STATE, uses=(2, 13, 16), kind="parameter"),
        Tensor(id=201, bytes=STATE, uses=(7, 8, 16), kind="parameter"),
    ]
    graph = replace(graph, tensors=(*graph.tensors, *weights))
    leaving = residents_leaving(graph, 0)
    before = {tensor.id for tensor in make_swap_problem(graph, MACHINE).tensors}
    found = {tensor.id: tensor for tensor in make_swap_problem(leaving, MACHINE).tensors}
    assert set(found) - before == {100, 101, 200}, "no state that is made anew, no weight that is used again at once"
    spans = [(found[name].last_forward_use, found[name].first_backward_use) for name in (100, 101, 200)]
    assert spans == [(0, 16), (0, 17), (2, 13)]
    late = {tensor.id for tensor in make_swap_problem(residents_leaving(graph, 15), MACHINE).tensors}
    assert late - before == {200}, "none that is used right after"


def test_where_they_may_leave_fewer_swaps_free_as_much() -> None:
    graph = trained([16384] * 8)
    budget = max(graph.memory_bytes) - STATE - 16384
    alone, both = (planner("greedy-swap")(each, MACHINE, budget).plan for each in (graph, residents_leaving(graph, 0)))
    assert alone is not None and both is not None
    few, many = ([a for a in each.actions if a.do == "swap_out"] for each in (both, alone))
    assert len(few) == 2 < len(many)
    assert {int(name) for action in few for name in action.data} == {100, 101}


def test_a_state_frees_as_much_in_smaller_steps() -> None:
    """What is missing grows with the size, what each of them frees does not."""
    graph, top = residents_leaving(trained([16384] * 8), 0), 8 * 16384
    budget = STATIC + 2 * STATE + 16384  # before they have left there is room for one layer
    plan = planner("greedy-swap")(graph, MACHINE, budget).plan
    assert plan is not None
    assert least_shares(graph, plan, budget) == {101: 16384 / top, 100: (16384 + STATE) / top}
