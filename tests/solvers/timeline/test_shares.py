"""From which size on the swaps of a schedule are needed, against sums of what is away."""

import random

import pytest

from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.ir.hardware import HOST, Device, Hardware, Link
from solvers.ir.schedule import Schedule
from solvers.planner import planner
from solvers.timeline.shares import least_shares

LAYERS, STATIC = 8, 1000
SIZES = [4096 * size for size in (1, 2, 3, 9, 4, 7, 5, 1)]
LINK = Link(a="device", b=HOST, bytes_per_s=10**12, latency_us=0.0, duplex="full")
MACHINE = Hardware(
    name="machine",
    devices=(Device(name="device", memory_bytes=1 << 30, flops_per_s={"float32": 10**12}, bytes_per_s=10**12),),
    links=(LINK,),
)


def stack(sizes: list[int]) -> OpGraph:
    """Layer j makes a tensor that its own backward pass reads; what a step holds is the sum of those that wait."""
    count = len(sizes)
    ops = [Op(name=f"f{layer}", phase="forward", time_us=100, outputs=(layer,)) for layer in range(count)]
    ops += [Op(name=f"b{layer}", phase="backward", time_us=100, inputs=(layer,)) for layer in reversed(range(count))]
    held = [sum(sizes[: layer + 1]) for layer in range(count)]
    return OpGraph(
        name="stack",
        ops=tuple(ops),
        tensors=tuple(
            Tensor(id=layer, bytes=size, born=layer, uses=(layer, 2 * count - 1 - layer), kind="activation")
            for layer, size in enumerate(sizes)
        ),
        memory_bytes=tuple(STATIC + here for here in [*held, *reversed(held)]),
    )


def missing(graph: OpGraph, schedule: Schedule, budget: int, share: float, leaving: set[int]) -> float:
    """The most by which an op of an iteration of that share is above the budget if these alone leave."""
    away = {int(name): action.op for action in schedule.actions if action.do == "swap_out" for name in action.data}
    back = {int(name): action.op for action in schedule.actions if action.do == "swap_in" for name in action.data}
    most = 0.0
    for op, bytes_ in enumerate(graph.memory_bytes):
        gone = [name for name in leaving if (away[name] or 0) < op < (back[name] or 0)]
        most = max(most, STATIC + share * (bytes_ - STATIC - sum(graph.tensors[name].bytes for name in gone)) - budget)
    return most


@pytest.mark.parametrize("seed", range(6))
def test_those_that_leave_are_enough_at_every_size_at_which_all_are(seed: int) -> None:
    draw = random.Random(seed)
    graph = stack(draw.sample(SIZES, LAYERS))
    budget = draw.randrange(55, 85) * max(graph.memory_bytes) // 100
    schedule = planner("greedy-swap")(graph, MACHINE, budget).plan
    assert schedule is not None
    shares = least_shares(graph, schedule, budget, [STATIC] * len(graph.ops))
    everything = {int(name) for name in shares}
    assert all(0 <= share <= 1 for share in shares.values())
    for percent in range(1, 101):
        share = percent / 100
        leaving = {int(name) for name, least in shares.items() if least <= share}
        assert missing(graph, schedule, budget, share, leaving) <= max(
            1.0, missing(graph, schedule, budget, share, everything)
        )
    fits = (budget - STATIC) / (max(graph.memory_bytes) - STATIC)
    assert min(shares.values()) == pytest.approx(fits), "while an iteration fits nothing leaves"


def test_the_largest_leave_first() -> None:
    graph = stack([4096, 8192, 65536, 4096, 4096])
    budget = STATIC + 77824 - 8192  # all but the largest and another one
    schedule = planner("greedy-swap")(graph, MACHINE, budget).plan
    assert schedule is not None
    shares = least_shares(graph, schedule, budget, [STATIC] * len(graph.ops))
    assert min(shares, key=lambda name: shares[name]) == 2


def test_what_stays_is_not_smaller_in_smaller_iterations() -> None:
    graph = stack([8192] * 4)
    budget = STATIC + 3 * 8192
    schedule = planner("greedy-swap")(graph, MACHINE, budget).plan
    assert schedule is not None
    varying = least_shares(graph, schedule, budget)
    staying = least_shares(graph, schedule, budget, [STATIC + 2 * 8192] * len(graph.ops))
    assert min(staying.values()) < min(varying.values())
    assert min(least_shares(graph, schedule, budget, [2 * budget] * len(graph.ops)).values()) == 0
