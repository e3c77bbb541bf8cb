"""The busiest sender is as idle as a maximum flow allows."""

import itertools
import random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import InvalidInput
from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.relief import Need
from solvers.replan.transfer.senders import Owners, choose_senders, least_sent, most_copies, sums, whole_layers
from solvers.replan.transfer.topology import Topology

FLAT = Topology.flat(1)


def least_by_flow(needs: list[Need], held: dict[int, Interval]) -> int:
    """Binary search on the capacity of every owner, networkx's maximum flow as the test."""

    def enough(capacity: int) -> bool:
        graph: nx.DiGraph[object] = nx.DiGraph()
        for need in needs:
            graph.add_edge("source", need, capacity=1)
            for owner, (first, end) in held.items():
                if first <= need[1] < end:
                    graph.add_edge(need, ("owner", owner), capacity=1)
                    graph.add_edge(("owner", owner), "sink", capacity=capacity)
        return not needs or nx.maximum_flow_value(graph, "source", "sink") == len(needs)

    return next(capacity for capacity in itertools.count() if enough(capacity))


def some_cluster(seed: int) -> tuple[list[Need], dict[int, Interval], int]:
    """Owners of runs that cover all layers, and receivers with other ids."""
    random_ = random.Random(seed)
    layers = random_.randint(1, 7)
    held = {0: (0, layers)}
    for node in range(1, random_.randint(1, 6)):
        first = random_.randrange(layers)
        held[node] = (first, random_.randint(first + 1, layers))
    if (
        len(held) > 2
        and random_.random() < 0.7
        and {x for run in held.values() for x in range(*run)}
        == set(x for node, run in held.items() if node for x in range(*run))
    ):
        del held[0]
    needs = {(100 + random_.randrange(8), random_.randrange(layers)) for _ in range(random_.randint(0, 14))}
    return sorted(needs), held, layers


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_layers_of_one_size_are_sent_as_evenly_as_a_maximum_flow_can(seed: int) -> None:
    needs, held, layers = some_cluster(seed)
    sending = choose_senders(needs, Owners(held), [3] * layers, FLAT)
    assert sending.most == sending.bound == 3 * least_by_flow(needs, held)
    assert [(move.target, move.layer) for move in sending.transfers] == needs
    for move in sending.transfers:
        first, end = held[move.source]
        assert first <= move.layer < end


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_larger_ends_stay_within_one_layer_of_a_valid_bound(seed: int, larger: int) -> None:
    needs, held, layers = some_cluster(seed)
    if len(needs) > 7:
        needs = needs[:7]
    sizes = [4 + larger if layer == 0 else 4 for layer in range(layers)]
    sending = choose_senders(needs, Owners(held), sizes, FLAT)
    owners = [[node for node, (first, end) in held.items() if first <= layer < end] for _, layer in needs]
    best = min(
        max(
            (sum(sizes[need[1]] for need, by in zip(needs, way, strict=True) if by == node) for node in held), default=0
        )
        for way in itertools.product(*owners)
    )
    assert sending.bound <= best <= sending.most <= sending.bound + max(sizes)


def test_what_a_receiver_takes_anyway_is_allowed_to_senders() -> None:
    needs = [(9, 0), (9, 1)]
    sending = choose_senders(needs, Owners({0: (0, 2), 1: (0, 2)}), [5, 5], FLAT, allowed=10)
    assert sending.bound == 10 >= sending.most


def test_copies_that_nobody_can_keep_are_sent_by_the_few_who_have_them() -> None:
    assert least_sent({1: 4}, Owners({0: (0, 1), 1: (0, 2), 2: (1, 3)}), [1, 7, 1], FLAT) == 14
    assert least_sent({}, Owners({0: (0, 1)}), [1], FLAT) == 0


def test_layers_without_bytes_are_named_too() -> None:
    sending = choose_senders([(9, 0), (9, 1)], Owners({4: (0, 2)}), [0, 0], FLAT)
    assert [move.source for move in sending.transfers] == [4, 4] and sending.most == 0


def test_a_layer_without_owner_is_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidInput, match="layer 1 has no owner alive to send it: load a checkpoint"):
        choose_senders([(9, 1)], Owners({0: (0, 1)}), [1, 1], FLAT)


def test_the_bound_knows_that_a_layer_is_not_divided() -> None:
    sending = choose_senders([(9, 0), (9, 1)], Owners({0: (0, 2), 1: (0, 2)}), [10, 4], FLAT)
    assert sending.bound == sending.most == 10


def test_neighbours_take_turns() -> None:
    where = Topology(nodes_per_host=4, inside_bytes_per_s=4, outside_bytes_per_s=1)
    sending = choose_senders([(1, 0), (2, 0)], Owners({0: (0, 1), 3: (0, 1)}), [8], where)
    assert sending.sent == {0: 8, 3: 8}


def test_neighbours_on_the_host_send_first() -> None:
    where = Topology(nodes_per_host=2, inside_bytes_per_s=4, outside_bytes_per_s=1)
    owners = Owners({0: (0, 1), 2: (0, 1), 4: (1, 2)})
    sending = choose_senders([(1, 0), (5, 0), (5, 1)], owners, [8, 8], where)
    assert [(move.target, move.source) for move in sending.transfers] == [(1, 0), (5, 2), (5, 4)]
    assert sending.sent == {0: 8, 2: 32, 4: 8}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 40))
def test_as_many_copies_as_the_busiest_owner_can_send_and_not_one_more(seed: int, most_bytes: int) -> None:
    _, held, layers = some_cluster(seed)
    owners, sizes = Owners(held), [3] * layers
    alive = [sum(first <= layer < end for first, end in held.values()) for layer in range(layers)]

    def sent(copies: int) -> int:
        demands = {layer: copies - count for layer, count in enumerate(alive) if count < copies}
        return least_sent(demands, owners, sizes, FLAT) if demands else 0

    copies = most_copies(owners, sizes, most_bytes, 30)
    assert not copies or sent(copies) <= most_bytes
    assert copies == 30 or sent(copies + 1) > most_bytes


def test_whole_layers_leave_a_rest() -> None:
    assert [whole_layers([5, 2, 2, 0], most) for most in (0, 1, 3, 5, 6, 8, 9)] == [0, 0, 2, 5, 6, 8, 9]
    assert whole_layers([], 7) == 0 and sums([5, 2], 9) == {0, 2, 4, 5, 6, 7, 8, 9}
    assert sums([], 3) == sums([4], 3) == {0} and sums([6, 10], 30) == {0, 6, 10, 12, 16, 18, 20, 22, 24, 26, 28, 30}
    huge = 10**9 + 7  # more than a table holds
    assert sums([huge, 2 * huge + 1], 3 * huge + 1) == {0, huge, 2 * huge, 2 * huge + 1, 3 * huge, 3 * huge + 1}
    assert most_copies(Owners({0: (0, 1)}), [4], 7, 30) == 2, "half a layer more is not sent"
