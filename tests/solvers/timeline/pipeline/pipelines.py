"""Pipelines told twice more: as a graph whose longest path is the time, and as a schedule on the lane core."""

import random
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from solvers.ir import Action, Schedule
from solvers.timeline import run_lanes
from solvers.timeline.pipeline.inputs import Discipline, Hide
from solvers.timeline.pipeline.order import Order
from tests.solvers.check.replan.naive_pipeline import limited_order

Node = tuple[str, int, int]
"""What, stage, microbatch."""


ORDER_CHOICES: tuple[Order, ...] = ("1f1b", "1f1b", "gpipe")
HIDE_CHOICES: tuple[Hide, ...] = ("none", "cooldown", "all")


@dataclass(frozen=True)
class Given:
    """The arguments of `pipeline`, as plain lists."""

    forward: list[int]
    backward: list[int]
    recompute: list[int]
    windows: list[int]
    hops: list[int]
    may_hide: list[bool]
    microbatches: int
    order: Order
    hide: Hide

    def arguments(self) -> dict[str, object]:
        return {
            "forward_us": self.forward,
            "backward_us": self.backward,
            "recompute_us": self.recompute,
            "forward_hidden_us": self.windows,
            "p2p_us": self.hops,
            "microbatches": self.microbatches,
            "how": Discipline(order=self.order, hide_in_stalls=self.hide, may_hide=self.may_hide),
        }


def random_given(seed: int) -> Given:
    """Up to 6 stages and 9 microbatches, with zero times, slow hops and every mode; one stage and M < P included."""
    source = random.Random(seed)
    depth = source.randint(1, 6)

    def times(most: int) -> list[int]:
        return [source.randint(0, most) for _ in range(depth)]

    return Given(
        forward=times(9),
        backward=times(15),
        recompute=times(source.choice((0, 6))),
        windows=times(source.choice((0, 4))),
        hops=[source.randint(0, source.choice((0, 3, 20))) for _ in range(depth - 1)],
        may_hide=[source.random() < 0.8 for _ in range(depth)],
        microbatches=source.randint(1, 9),
        order=source.choice(ORDER_CHOICES),
        hide=source.choice(HIDE_CHOICES),
    )


def lane_order(given: Given, stage: int) -> list[tuple[str, int]]:
    """The passes of a stage; 1F1B is told as a limit on microbatches in flight."""
    count, depth = given.microbatches, len(given.forward)
    if given.order == "1f1b":
        return limited_order(depth - stage, count)
    return [("F", m) for m in range(count)] + [("B", m) for m in reversed(range(count))]


def recomputation(given: Given, stage: int, number: int) -> tuple[int, bool]:
    """Its time on the lane, and whether it may start before the gradient's arrival, told from the stage's own order."""
    passes = lane_order(given, stage)
    before = passes[passes.index(("B", number)) - 1]
    steady = before[0] == "F" and before[1] - number == len(given.forward) - 1 - stage and given.order == "1f1b"
    time = given.recompute[stage] + (0 if steady and stage + 1 < len(given.forward) else given.windows[stage])
    allowed = given.hide == "all" or (given.hide == "cooldown" and not steady)
    return time, allowed and given.may_hide[stage] and time > 0


def graph(given: Given) -> "nx.DiGraph[Node]":
    """Every pass and recomputation as (what, stage, microbatch); an edge u → v weighs u's time plus the hop."""
    depth = len(given.forward)
    dag: nx.DiGraph[Node] = nx.DiGraph()
    for stage in range(depth):
        chain: list[Node] = []
        for kind, number in lane_order(given, stage):
            dag.add_node((kind, stage, number), time=(given.forward if kind == "F" else given.backward)[stage])
            if kind == "B":
                time, early = recomputation(given, stage, number)
                dag.add_node(("R", stage, number), time=time)
                chain.append(("R", stage, number))
                waiting = ("B" if early else "R", stage, number)
                source = ("B", stage + 1, number) if stage + 1 < depth else ("F", stage, number)
                hop = given.hops[stage] if stage + 1 < depth else 0
                dag.add_edge(source, waiting, hop=hop)
            elif stage:
                dag.add_edge(("F", stage - 1, number), (kind, stage, number), hop=given.hops[stage - 1])
            chain.append((kind, stage, number))
        for first, second in pairwise(chain):
            dag.add_edge(first, second, hop=max(0, dag.get_edge_data(first, second, {"hop": 0})["hop"]))
    return dag


def longest_path_ends(given: Given) -> dict[Node, int]:
    """The end of every node: the longest path that ends with it."""
    dag, ends = graph(given), dict[Node, int]()
    for node in nx.topological_sort(dag):
        waits = [ends[before] + dag.edges[before, node]["hop"] for before in dag.predecessors(node)]
        ends[node] = max(waits, default=0) + dag.nodes[node]["time"]
    return ends


def lane_ends(given: Given) -> dict[Node, float]:
    """The same by the lane core; a message is an action on a lane of its own, since messages do not queue."""
    dag = graph(given)
    numbers = {node: number for number, node in enumerate(dag)}
    messages = [(u, v, data["hop"]) for u, v, data in dag.edges(data=True) if u[1] != v[1] and data["hop"]]
    lanes = [f"{stage}.compute" for stage in range(len(given.forward))]
    lanes += [f"{len(lanes) + number}.out" for number in range(len(messages))]
    sent = {(u, v): len(numbers) + number for number, (u, v, _) in enumerate(messages)}
    actions = [
        Action(id=number, lane=lanes[len(given.forward) + number - len(numbers)], do="send", after=(numbers[u],))
        for (u, _), number in sent.items()
    ]
    for stage in range(len(given.forward)):
        for kind, batch in lane_order(given, stage):
            for node in ([("R", stage, batch)] if kind == "B" else []) + [(kind, stage, batch)]:
                after = tuple(sent.get((u, node), numbers[u]) for u in dag.predecessors(node) if u[1] != stage)
                actions.append(Action(id=numbers[node], lane=lanes[stage], do="compute", after=after))
    times = {numbers[node]: dag.nodes[node]["time"] for node in dag}
    times |= {sent[u, v]: hop for u, v, hop in messages}
    spans = run_lanes(Schedule(lanes=tuple(lanes), actions=tuple(actions)), lambda action: times[action.id])
    return {node: spans[number].end_us for node, number in numbers.items()}
