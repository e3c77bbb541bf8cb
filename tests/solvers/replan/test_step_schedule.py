"""A step as a schedule: a replay, node by node, ends; every microbatch passes every layer once each way, in order."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import InvalidProblem, Limits
from solvers.ir.replan import CurrentPipeline, CurrentState, NewPipeline, ReplanPlan, ReplanProblem
from solvers.ir.schedule import Action, Schedule
from solvers.planner import after_failure, build_solver, lower_step


def running(data: int, depth: int, own: int, layers: int) -> ReplanProblem:
    share, rest = divmod(layers, depth)
    split = tuple(share + (stage < rest) for stage in range(depth))
    pipelines = tuple(
        CurrentPipeline(layers=split, nodes=tuple(range(one * depth, (one + 1) * depth)), microbatches=own)
        for one in range(data)
    )
    return ReplanProblem(
        name="a cluster", nodes=data * depth, microbatches=data * own, layers=layers, forward_us=10, backward_us=20,
        first_extra_us=(1, 2), last_extra_us=(3, 4), p2p_us=1, sync_us=5, memory_bytes=2**40, layer_static_bytes=100,
        layer_activation_bytes=10, first_static_bytes=7, last_static_bytes=9, max_depth=layers, layer_sync_us=3,
        current=CurrentState(pipelines=pipelines, failed=()), restart_us=100, bytes_per_s=10**6,
        expected_interval_us=10**9,
    )  # fmt: skip


def by_node(schedule: Schedule) -> dict[int, list[Action]]:
    found: dict[int, list[Action]] = {}
    for action in schedule.actions:
        found.setdefault(int(action.lane.partition(".")[0]), []).append(action)
    return found


def replay(schedule: Schedule) -> list[tuple[int, Action]]:
    """What happens when each node walks its actions with one thread; a wait that never ends is an error."""
    walks = by_node(schedule)
    place = dict.fromkeys(walks, 0)
    done: set[int] = set()
    happened: list[tuple[int, Action]] = []
    going = True
    while going:
        going = False
        for node, actions in walks.items():
            while place[node] < len(actions) and set(actions[place[node]].after) <= done:
                happened.append((node, actions[place[node]]))
                done.add(actions[place[node]].id)
                place[node] += 1
                going = True
    assert all(place[node] == len(actions) for node, actions in walks.items()), "some wait for ever"
    return happened


def judge(problem: ReplanProblem, schedule: Schedule) -> None:
    holds: dict[int, set[int]] = {}
    reached: dict[tuple[int, str], tuple[int, int]] = {}  # of a microbatch's way: the last layer, and where it is
    under_way: dict[tuple[int, str], tuple[int, int]] = {}
    passes: Counter[tuple[int, int, str]] = Counter()
    for node, action in replay(schedule):
        way = (action.microbatch or 0, str(action.direction))
        if action.do == "compute":
            layer, forward = action.op or 0, action.direction == "forward"
            passes[layer, *way] += 1
            holds.setdefault(node, set()).add(layer)
            first = layer == 0 if forward else layer == problem.layers - 1
            if not first:
                assert reached[way] == (layer - 1 if forward else layer + 1, node)
            elif not forward:
                assert reached[way[0], "forward"] == (layer, node)
            reached[way] = layer, node
        elif action.do == "send":
            assert reached[way][1] == node
            under_way[way] = node, int(action.peer or 0)
        elif action.do == "recv":
            assert under_way.pop(way) == (action.peer, node)
            reached[way] = reached[way][0], node
    expected = [(layer, m, d) for layer in range(problem.layers) for m in range(problem.microbatches)
                for d in ("forward", "backward")]  # fmt: skip
    assert passes == Counter(expected)
    assert not under_way
    owners = {layer: [node for node, held in holds.items() if layer in held] for layer in range(problem.layers)}
    sums = Counter(action.op for action in schedule.actions if action.do == "collective_start")
    assert sums == Counter({layer: len(nodes) for layer, nodes in owners.items() if len(nodes) > 1})
    updates = {node: {one.op for one in walk if one.do == "update"} for node, walk in by_node(schedule).items()}
    assert updates == holds
    orders = [[one.op for one in walk if one.do == "collective_start"] for walk in by_node(schedule).values()]
    shared = [(a, b) for order in orders for number, a in enumerate(order) for b in order[number + 1 :]]
    assert not any((b, a) in shared for a, b in shared), "two nodes would sum two layers in opposite orders"


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 4), st.sets(st.integers(0, 15), max_size=3),
    st.sampled_from(["exact-replan", "algorithm1", "reroute"]),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_every_plan_after_failures_has_a_step(
    data: int, depth: int, own: int, more: int, failed: set[int], solver: str
) -> None:
    before = running(data, depth, own, depth + more)
    gone = tuple(sorted(node for node in failed if node < before.nodes))
    if len(gone) == before.nodes:
        return
    problem = after_failure(before, gone) if gone else before
    plan = build_solver(solver, {}).solve(problem, Limits(time_s=5)).plan
    if plan is not None:
        judge(problem, lower_step(problem, plan))


def test_the_survivors_of_a_stage_share_what_it_lost() -> None:
    """Two pipelines of two: node 1 (second stage) is gone, node 3 does its passes too."""
    problem = after_failure(running(2, 2, 2, 4), (1,))
    schedule = lower_step(problem, ReplanPlan(policy="reroute", pipelines=(), transfers=None))
    judge(problem, schedule)
    computes = Counter(int(one.lane[0]) for one in schedule.actions if one.do == "compute")
    assert computes == {0: 8, 2: 8, 3: 16}
    sums = {(one.op, int(one.lane[0])) for one in schedule.actions if one.do == "collective_start"}
    assert sums == {(0, 0), (1, 0), (0, 2), (1, 2)}  # the second stage's layers are on one node


def test_plans_without_nodes_have_no_step() -> None:
    problem = running(2, 2, 2, 4)
    plan = ReplanPlan(
        policy="dynamic", pipelines=(NewPipeline(layers=(2, 2), microbatches=4, nodes=None),), transfers=None
    )
    with pytest.raises(InvalidProblem, match=r"pipelines\[0\].nodes is null: map the stages to nodes"):
        lower_step(problem, plan)
    alone = msgspec.structs.replace(problem, current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None)
    with pytest.raises(InvalidProblem, match="has no current: give the running pipelines"):
        lower_step(alone, ReplanPlan(policy="reroute", pipelines=(), transfers=None))
