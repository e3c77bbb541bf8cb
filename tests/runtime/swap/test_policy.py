"""A schedule becomes targets that are found by features, and events that are found by operators."""

from msgspec.structs import replace

from runtime.swap.policy import Anchor, anchors, locate
from solvers.ir.graph import Tensor
from solvers.ir.schedule import parse_schedule
from solvers.timeline.gaps import gaps_apart
from solvers.timeline.residents import residents_leaving
from tests.runtime.swap.chain import BACKWARD_ID, FORWARD_ID, LAYER_BYTES, Seen, chain_profiled, with_state

SCHEDULE = parse_schedule("""\
lanes 0.compute 0.out 0.in
0 0.compute compute op=0
1 0.out swap_out op=0 data=0 bytes=1048576 after=0
2 0.compute compute op=1
3 0.out swap_out op=1 data=1 bytes=1048576 after=2
4 0.compute release op=2 data=0 bytes=1048576 after=1
5 0.compute compute op=2
6 0.compute release op=3 data=1 bytes=1048576 after=3
7 0.in swap_in op=3 data=1 bytes=1048576 after=6
8 0.in swap_in op=3 data=0 bytes=1048576
9 0.compute compute op=3
10 0.compute compute op=4 after=7
11 0.compute compute op=5 after=8
12 0.compute compute op=6
""")


def test_an_anchor_counts_operators_of_its_phase_and_id() -> None:
    assert anchors([4, 4, 5, 4], bytes([0, 0, 0, 2])) == [
        Anchor(0, 4, 0),
        Anchor(0, 4, 1),
        Anchor(0, 5, 0),
        Anchor(2, 4, 0),
    ]


def test_targets_are_the_sightings_at_the_last_forward_use() -> None:
    policy = locate(SCHEDULE, *chain_profiled(3)[:4])
    assert [(target.key, target.ordinal, target.op) for target in policy.targets] == [(99, 0, 0), (99, 1, 1)]
    assert policy.bytes == 2 * LAYER_BYTES
    assert policy.unseen == 0


def test_events_keep_the_order_of_issue_and_stand_before_their_operator() -> None:
    policy = locate(SCHEDULE, *chain_profiled(3)[:4])
    assert [(event.do, event.op, event.anchor, event.targets) for event in policy.events] == [
        ("release", 2, Anchor(0, FORWARD_ID, 2), (0,)),
        ("release", 3, Anchor(2, BACKWARD_ID, 0), (1,)),
        ("swap_in", 3, Anchor(2, BACKWARD_ID, 0), (1,)),
        ("swap_in", 3, Anchor(2, BACKWARD_ID, 0), (0,)),
    ]


def test_arrivals_are_the_first_uses_after_the_return() -> None:
    assert locate(SCHEDULE, *chain_profiled(3)[:4]).arrivals == ((1, 4), (0, 5))


def test_a_tensor_that_was_not_sighted_stays_with_all_its_events() -> None:
    policy = locate(SCHEDULE, *chain_profiled(3, unseen=frozenset({0}))[:4])
    assert [target.ordinal for target in policy.targets] == [1]
    assert [(event.do, event.targets) for event in policy.events] == [("release", (0,)), ("swap_in", (0,))]
    assert policy.arrivals == ((0, 4),)
    assert policy.unseen == 1


def test_targets_leave_from_their_share_of_the_size_on() -> None:
    policy = locate(SCHEDULE, *chain_profiled(3)[:4], {1: 0.75})
    assert [target.least_pass_bytes for target in policy.targets] == [0, 768]
    assert [target.least_pass_bytes for target in policy.sparing_less(0.5).targets] == [0, 384]


def test_a_state_leaves_at_an_event_and_is_told_by_its_storage() -> None:
    profiled = with_state(chain_profiled(3))
    graph = residents_leaving(profiled.graph, 1)
    schedule = parse_schedule("""\
lanes 0.compute 0.out 0.in
0 0.compute compute op=0
1 0.compute compute op=1
2 0.out swap_out op=1 data=3 bytes=1048576 after=1
3 0.compute compute op=2
4 0.compute compute op=3
5 0.compute release op=4 data=3 bytes=1048576 after=2
6 0.compute compute op=4
7 0.in swap_in op=5 data=3 bytes=1048576 after=5
8 0.compute compute op=5
9 0.compute compute op=6 after=7
""")
    policy = locate(schedule, graph, *profiled[1:4], {3: 0.5})
    assert [(target.storage, target.op, target.least_pass_bytes) for target in policy.targets] == [(2000, 1, 512)]
    assert [(event.do, event.op) for event in policy.events] == [("swap_out", 2), ("release", 4), ("swap_in", 5)]
    assert policy.arrivals == ((0, 6),) and policy.unseen == 0
    unseen = {place: seen for place, seen in profiled.sightings.items() if place[0] != 3}
    assert locate(schedule, graph, *profiled[1:3], unseen).unseen == 1


def test_a_tensor_that_leaves_twice_is_two_targets() -> None:
    """Each is sighted where its gap begins, and returns at that gap's end."""
    profiled = chain_profiled(3)
    history = Tensor(id=3, bytes=LAYER_BYTES, uses=(0, 3, 6), kind="optimizer")
    seen = {
        (3, op): Seen(op=op, storage=2000, key=op, ordinal=0, position=1, result=False, pass_bytes=0) for op in (0, 3)
    }
    graph = gaps_apart(replace(profiled.graph, tensors=(*profiled.graph.tensors, history)), 0)
    schedule = parse_schedule("""\
lanes 0.compute 0.out 0.in
0 0.compute compute op=0
1 0.out swap_out op=0 data="3@0" bytes=1048576 after=0
2 0.compute compute op=1
3 0.compute release op=2 data="3@0" bytes=1048576 after=1
4 0.in swap_in op=2 data="3@0" bytes=1048576 after=3
5 0.compute compute op=2
6 0.compute compute op=3 after=4
7 0.out swap_out op=3 data="3@3" bytes=1048576 after=6
8 0.compute compute op=4
9 0.compute release op=5 data="3@3" bytes=1048576 after=7
10 0.in swap_in op=5 data="3@3" bytes=1048576 after=9
11 0.compute compute op=5
12 0.compute compute op=6 after=10
""")
    policy = locate(schedule, graph, *profiled[1:3], {**profiled.sightings, **seen})  # type: ignore[dict-item]
    assert [(target.key, target.op) for target in policy.targets] == [(0, 0), (3, 3)]
    assert policy.arrivals == ((0, 3), (1, 6)) and policy.unseen == 0
