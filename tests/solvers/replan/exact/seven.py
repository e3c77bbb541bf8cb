"""Clusters of up to seven nodes after a failure, and the best decision: every plan, every mapping, senders by max-flow.

Times of pipelines are the judge's. Nodes that hold the same layers are alike, which is what makes seven possible.
Layers are of one size, so that a flow tells how much the busiest sender must send.
"""

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise

import msgspec
import networkx as nx

from solvers.check.replan.judge import judge_replan
from solvers.ir import CurrentPipeline, CurrentState, ReplanProblem
from tests.solvers.replan.brute_force import REROUTE, timed_pipelines
from tests.solvers.replan.exact.problems import random_problem

Run = tuple[int, int]
"""Layers first … end − 1; nothing is (0, 0)."""


def seven_nodes(seed: int) -> ReplanProblem:
    """Two to four pipelines of one to three stages, not all alike; one or two nodes failed; head cost or none."""
    source, problem = random.Random(seed), random_problem(seed, layers=4)
    pipelines, first = list[CurrentPipeline](), 0
    while first < 6:
        depth = source.randint(1, min(3, problem.layers, 8 - first))
        cuts = [0, *sorted(source.sample(range(1, problem.layers), depth - 1)), problem.layers]
        layers = tuple(after - before for before, after in pairwise(cuts))
        nodes = tuple(range(first, first + depth))
        pipelines.append(CurrentPipeline(layers=layers, nodes=nodes, microbatches=source.randint(1, 2)))
        first += depth
    failed = tuple(source.sample(range(first), max(first - 7, source.choice([1, 1, 2]))))
    restart = source.choice([0, 10])
    return msgspec.structs.replace(
        problem,
        name=f"seven {seed}",
        nodes=min(7, first - len(failed) + source.choice([0, 0, 1])),
        microbatches=sum(pipeline.microbatches for pipeline in pipelines),
        first_static_bytes=0,
        last_static_bytes=0,
        memory_bytes=source.choice([10**6, 10**6, problem.memory_bytes]),
        max_depth=source.randint(2, 4),
        current=CurrentState(pipelines=tuple(pipelines), failed=failed),
        restart_us=restart,
        bytes_per_s=1_000_000,
        expected_interval_us=restart + source.choice([30, 200, 2000]),
    )


def optimum_of_seven(problem: ReplanProblem) -> int | None:
    """The least objective of any valid decision; None where there is none."""
    held = _held(problem)
    best = judge_replan(problem, REROUTE).objective_us
    if {layer for run in held for layer in range(*run)} != set(range(problem.layers)):
        return None
    plans = []
    for slowest, chosen in timed_pipelines(problem):
        fullest = max(max(layers) for layers, _ in chosen)
        step = slowest + (len(chosen) > 1) * (problem.sync_us + problem.layer_sync_us * fullest)
        plans.append((step, tuple(sorted(run for layers, _ in chosen for run in _runs(layers)))))
    for step, stages in sorted(set(plans)):
        at_least = _objective(problem, step, 0)
        if at_least is None or (best is not None and at_least >= best):
            break
        found = _objective(problem, step, _least_load(held, stages))
        best = found if best is None or (found is not None and found < best) else best
    return best


def _objective(problem: ReplanProblem, step: int, load: int) -> int | None:
    interval, rate = problem.expected_interval_us or 0, problem.bytes_per_s or 1
    lost = (problem.restart_us or 0) + Fraction(load * problem.layer_static_bytes * 10**6, rate)
    if lost >= interval:
        return None
    value = step * interval / (interval - lost)
    return -(-value.numerator // value.denominator)


def _runs(layers: tuple[int, ...]) -> list[Run]:
    return [(sum(layers[:stage]), sum(layers[: stage + 1])) for stage in range(len(layers))]


def _held(problem: ReplanProblem) -> tuple[Run, ...]:
    """What each node alive holds."""
    assert problem.current is not None
    failed = set(problem.current.failed)
    held = [
        run
        for pipeline in problem.current.pipelines
        for node, run in zip(pipeline.nodes, _runs(pipeline.layers), strict=True)
        if node not in failed
    ]
    return tuple(sorted([*held, *[(0, 0)] * (problem.nodes - len(held))]))


@cache
def _least_load(held: tuple[Run, ...], stages: tuple[Run, ...]) -> int:
    """Layers that the busiest node receives or sends, at least."""
    best: int | None = None
    for received, needs in sorted(set(_mappings(Counter(held), stages))):
        if best is None or received < best:
            load = max(received, _sent(Counter(run for run in held if run != (0, 0)), needs))
            best = load if best is None else min(best, load)
    assert best is not None
    return best


def _mappings(free: Counter[Run], stages: tuple[Run, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """What the busiest receives and all copies that travel, for every choice of kinds of nodes."""
    if not stages:
        yield 0, ()
        return
    for kind in [kind for kind, count in free.items() if count]:
        lacking = tuple(layer for layer in range(*stages[0]) if not kind[0] <= layer < kind[1])
        for received, needs in _mappings(free - Counter([kind]), stages[1:]):
            yield max(received, len(lacking)), tuple(sorted([*needs, *lacking]))


@cache
def _sent_at_most(owners: tuple[tuple[Run, int], ...], needs: tuple[int, ...], most: int) -> bool:
    graph: nx.DiGraph[object] = nx.DiGraph()
    for layer, copies in Counter(needs).items():
        graph.add_edge("needs", layer, capacity=copies)
        for run, nodes in owners:
            if run[0] <= layer < run[1]:
                graph.add_edge(layer, run)
                graph.add_edge(run, "sent", capacity=nodes * most)
    return not needs or nx.maximum_flow_value(graph, "needs", "sent") == len(needs)


def _sent(owners: Counter[Run], needs: tuple[int, ...]) -> int:
    """The copies that the busiest of the owners must send."""
    return next(most for most in range(len(needs) + 1) if _sent_at_most(tuple(sorted(owners.items())), needs, most))
