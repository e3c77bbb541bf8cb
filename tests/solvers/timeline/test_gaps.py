"""What waits in several gaps of one step, or in passes that do not use it, may leave in each of them."""

from msgspec.structs import replace

from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.planner import planner
from solvers.swap.make import make_swap_problem
from solvers.timeline.gaps import gaps_apart, is_gap, owner_of
from solvers.timeline.shares import least_shares, swaps_short
from tests.solvers.timeline.test_shares import MACHINE, SIZES, STATIC, stack

HISTORY = 65536
PASS = [16384] * 4


def evaluated_twice() -> OpGraph:
    """An optimizer that reads its history, has its closure evaluated, and again, and reads it at last."""
    one, count = stack(PASS), 2 * len(PASS)
    reads = Op(name="reads", phase="optimizer", time_us=100, inputs=(100,))
    later = [
        replace(t, id=10 + int(t.id), born=count + 2 + (t.born or 0), uses=tuple(count + 2 + op for op in t.uses))
        for t in one.tensors
    ]
    first = [replace(t, born=1 + (t.born or 0), uses=tuple(1 + op for op in t.uses)) for t in one.tensors]
    history = Tensor(id=100, bytes=HISTORY, uses=(0, count + 1, 2 * count + 2), kind="optimizer")
    held = (STATIC, *one.memory_bytes, STATIC, *one.memory_bytes, STATIC)
    named = [replace(op, inputs=(), outputs=()) for op in one.ops]
    return OpGraph(
        name="twice",
        ops=(reads, *named, reads, *named, reads),
        tensors=(*first, *later, history),
        memory_bytes=tuple(here + HISTORY for here in held),
    )


def test_each_gap_is_a_candidate_by_itself() -> None:
    graph = evaluated_twice()
    budget = max(graph.memory_bytes) - HISTORY
    assert 100 not in {tensor.id for tensor in make_swap_problem(graph, MACHINE, budget).tensors}, "no pass uses it"
    found = make_swap_problem(gaps_apart(graph, budget), MACHINE, budget, gaps=True).tensors
    spans = {(tensor.first_backward_use, tensor.last_forward_use) for tensor in found if owner_of(tensor.id) == 100}
    assert spans == {(9, 0), (18, 9)}
    assert {owner_of(tensor.id) for tensor in found} >= {0, 10}, "activations, too"
    assert all(is_gap(tensor.id) and tensor.bytes in (HISTORY, PASS[0]) for tensor in found)


def test_one_swap_of_the_history_frees_a_whole_pass() -> None:
    """Of activations four would have to go in each pass, and they cannot before they are made."""
    graph = evaluated_twice()
    budget = max(graph.memory_bytes) - 40000
    apart = gaps_apart(graph, budget)
    plan = planner("greedy-swap", {"fewest": True}, gaps=True)(apart, MACHINE, budget).plan
    assert plan is not None
    left = sorted(str(name) for action in plan.actions if action.do == "swap_out" for name in action.data)
    assert left == ["100@0", "100@9"]
    alone = planner("greedy-swap", {"fewest": True})(graph, MACHINE, budget).plan
    assert alone is not None and sum(action.do == "swap_out" for action in alone.actions) > 2
    assert set(least_shares(apart, plan, budget)) == {"100@0", "100@9"}


def test_gaps_in_which_memory_suffices_or_that_nobody_can_tell_are_none() -> None:
    graph = evaluated_twice()
    assert gaps_apart(graph, max(graph.memory_bytes)) == graph
    first = [*graph.memory_bytes[:9], *[STATIC] * 10]  # the second pass is small
    apart = gaps_apart(replace(graph, memory_bytes=tuple(first)), STATIC)
    assert "100@0" in {tensor.id for tensor in apart.tensors} and "100@9" not in {t.id for t in apart.tensors}
    made = replace(graph.ops[1], outputs=(1,))  # it does not return tensor 0, which it makes
    hidden = gaps_apart(replace(graph, ops=(graph.ops[0], made, *graph.ops[2:])), STATIC)
    assert "0@1" in {tensor.id for tensor in apart.tensors} and "0@1" not in {t.id for t in hidden.tensors}


def test_what_lives_on_waits_to_the_end() -> None:
    graph = evaluated_twice()
    uses = (0, 9)
    graph = replace(graph, tensors=(*graph.tensors[:-1], replace(graph.tensors[-1], uses=uses)))
    ends = {tensor.id: tensor.uses for tensor in gaps_apart(graph, STATIC, {100}).tensors}
    assert ends["100@9"] == (9, 18)
    assert "100@9" not in {tensor.id for tensor in gaps_apart(graph, STATIC).tensors}


def test_what_a_schedule_leaves_to_others_is_counted() -> None:
    """By the largest tensor, for each stretch of ops at which memory is short."""
    graph = stack(SIZES)
    budget = max(graph.memory_bytes) - 4096
    plan = planner("greedy-swap")(graph, MACHINE, budget).plan
    assert plan is not None
    shares, stays = least_shares(graph, plan, budget, [STATIC] * len(graph.ops)), [STATIC] * len(graph.ops)
    assert swaps_short(graph, plan, budget, shares, 1.0, stays) == 0
    never = dict.fromkeys(shares, 2.0)
    assert swaps_short(graph, plan, budget, never, 1.0, stays) == 1
    missing = max(graph.memory_bytes) - max(SIZES)
    assert swaps_short(graph, plan, max(SIZES), never, 1.0, stays) == -(-missing // max(SIZES)) > 1
    assert swaps_short(graph, plan, budget, never, 0.5, stays) == 0, "half as large a step has room"
