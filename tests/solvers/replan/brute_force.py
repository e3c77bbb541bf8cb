"""Tiny clusters, and the best decision by trying every split, every mapping, and every choice of senders.

Times of pipelines are the judge's; nothing here is a solver's.
"""

import random
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, permutations

import msgspec

from solvers.check.replan.judge import judge_replan, pipeline_us
from solvers.ir import CurrentPipeline, CurrentState, ReplanPlan, ReplanProblem

REROUTE = ReplanPlan(policy="reroute", pipelines=(), transfers=None)
Shape = tuple[tuple[int, ...], int]
"""Layers a stage, and microbatches."""


def random_problem(seed: int) -> ReplanProblem:
    """At most five nodes; mostly alike pipelines that lost a node or two; memory from too little to ample."""
    source = random.Random(seed)
    depth, degree = source.choice([(1, 3), (2, 2), (2, 2), (1, 2), (2, 1), (3, 1)])
    layers = source.randint(max(2, depth), 5)
    share = source.randint(1, 3)
    stages = _random_split(source, layers, depth)
    pipelines = tuple(
        CurrentPipeline(
            layers=stages if source.random() < 0.9 else _random_split(source, layers, depth),
            nodes=tuple(range(number * depth, (number + 1) * depth)),
            microbatches=share,
        )
        for number in range(degree)
    )
    failed = tuple(source.sample(range(depth * degree), min(source.choice([0, 1, 1, 1, 2]), depth * degree - 1)))
    alive = depth * degree - len(failed) + source.choice([0, 0, 0, 1])
    running = source.random() < 0.9
    static, activation = source.randint(1, 9), source.randint(0, 3)
    least = layers * static // max(1, alive)
    return ReplanProblem(
        name=f"tiny {seed}",
        nodes=alive,
        microbatches=share * degree,
        layers=layers,
        forward_us=source.randint(0, 5),
        backward_us=source.randint(1, 9),
        first_extra_us=(source.randint(0, 3), source.randint(0, 3)),
        last_extra_us=(source.randint(0, 9), source.randint(0, 9)),
        p2p_us=source.choice([0, 0, 1, 4]),
        sync_us=source.choice([0, 2, 9]),
        layer_sync_us=source.choice([0, 0, 1, 3]),
        memory_bytes=source.choice([10**6, 10**6, 10**6, source.randint(least, 3 * least + 30)]),
        layer_static_bytes=static,
        layer_activation_bytes=activation,
        first_static_bytes=source.randint(0, 3),
        last_static_bytes=source.randint(0, 3),
        max_depth=source.randint(max(1, depth - 1), 4),
        data_parallel=None if running and source.random() < 0.5 else degree,
        current=CurrentState(pipelines=pipelines, failed=failed) if running else None,
        restart_us=source.choice([0, 10, 50]) if running else None,
        bytes_per_s=source.choice([200_000, 1_000_000, 10**9]) if running else None,
        expected_interval_us=source.choice([40, 200, 1000, 10**6]) if running else None,
        sharded_optimizer=source.random() < 0.05,
    )


def unlike_problem(seed: int) -> ReplanProblem:
    """At most five nodes; pipelines of several depths; restarts that take almost as long as nodes live."""
    problem, source = random_problem(seed), random.Random(-1 - seed)
    pipelines, first = list[CurrentPipeline](), 0
    while first < 5 and len(pipelines) < source.randint(2, 4):
        depth = source.randint(1, min(3, problem.layers, 5 - first))
        stages, nodes = _random_split(source, problem.layers, depth), tuple(range(first, first + depth))
        pipelines.append(CurrentPipeline(layers=stages, nodes=nodes, microbatches=source.randint(1, 3)))
        first += depth
    failed = tuple(source.sample(range(first), min(source.choice([0, 1, 1, 2]), first - 1)))
    restart, rate = source.choice([0, 10, 50]), source.choice([200_000, 1_000_000])
    one = problem.layer_static_bytes * 1_000_000 // rate
    return msgspec.structs.replace(
        problem,
        name=f"unlike {seed}",
        nodes=min(5, first - len(failed) + source.choice([0, 0, 1])),
        microbatches=min(6, sum(pipeline.microbatches for pipeline in pipelines)),
        data_parallel=None,
        current=CurrentState(pipelines=tuple(pipelines), failed=failed),
        restart_us=restart,
        bytes_per_s=rate,
        expected_interval_us=restart + source.choice([1, 2, one, one + 1, 2 * one + 1, 200]),
    )


def _random_split(source: random.Random, total: int, parts: int) -> tuple[int, ...]:
    cuts = [0, *sorted(source.sample(range(1, total), parts - 1)), total]
    return tuple(after - before for before, after in pairwise(cuts))


@lru_cache(maxsize=256)
def optimum(problem: ReplanProblem) -> int | None:
    """The least objective of any valid decision; None where there is none."""
    failed = set() if problem.current is None else set(problem.current.failed)
    if problem.sharded_optimizer and failed:
        return None
    best = judge_replan(problem, REROUTE).objective_us
    restart = Fraction(problem.restart_us or 0)
    for step, shapes in sorted(_plans(problem)):
        at_least = _objective(problem, step, restart)
        if at_least is None or (best is not None and at_least >= best):
            return best  # later ones have longer steps
        moving = _transfer_us(problem, shapes)
        found = None if moving is None else _objective(problem, step, restart + moving)
        if found is not None and (best is None or found < best):
            best = found
    return best


def least_still_step_us(problem: ReplanProblem) -> int | None:
    """The least T_step of all pipelines that need no transfer; None where there are none."""
    still = (step for step, shapes in sorted(_plans(problem)) if _transfer_us(problem, shapes) == 0)
    return next(still, None)


def _objective(problem: ReplanProblem, step: int, lost: Fraction) -> int | None:
    """T·τ/(τ − T_trans), rounded up; None where the transition takes the whole interval."""
    interval = problem.expected_interval_us
    if interval is not None and lost >= interval:
        return None
    value = Fraction(step) if interval is None else step * interval / (interval - lost)
    return -(-value.numerator // value.denominator)


def _plans(problem: ReplanProblem) -> Iterator[tuple[int, tuple[Shape, ...]]]:
    """Every set of pipelines that fits nodes and memory, with its step time."""
    for slowest, chosen in timed_pipelines(problem):
        fullest = max(max(layers) for layers, _ in chosen)
        yield slowest + (len(chosen) > 1) * (problem.sync_us + problem.layer_sync_us * fullest), chosen


def timed_pipelines(problem: ReplanProblem) -> Iterator[tuple[int, tuple[Shape, ...]]]:
    """Every set of pipelines that fits nodes and memory, with the slowest one's time."""
    shapes = [
        (layers, share)
        for depth in range(1, min(problem.max_depth, problem.nodes, problem.layers) + 1)
        for layers in splits(problem.layers, depth)
        for share in range(1, problem.microbatches + 1)
        if fits(problem, layers, share)
    ]
    times = {shape: pipeline_us(problem, *shape) for shape in shapes}
    for chosen in _chosen(shapes, 0, problem.nodes, problem.microbatches):
        yield max(times[shape] for shape in chosen), chosen


def _chosen(shapes: list[Shape], first: int, nodes: int, microbatches: int) -> Iterator[tuple[Shape, ...]]:
    if microbatches == 0:
        yield ()
    for number in range(first, len(shapes)):
        layers, share = shapes[number]
        if len(layers) <= nodes and share <= microbatches:
            for rest in _chosen(shapes, number, nodes - len(layers), microbatches - share):
                yield ((layers, share), *rest)


def splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to share `total` among `parts`, at least one each."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in splits(total - first, parts - 1):
            yield (first, *rest)


def fits(problem: ReplanProblem, layers: tuple[int, ...], microbatches: int) -> bool:
    """F8 on every stage."""
    depth = len(layers)
    for stage, count in enumerate(layers):
        held = count * (problem.layer_static_bytes + min(depth - stage, microbatches) * problem.layer_activation_bytes)
        held += problem.first_static_bytes * (stage == 0) + problem.last_static_bytes * (stage == depth - 1)
        if held > problem.memory_bytes:
            return False
    return True


def _transfer_us(problem: ReplanProblem, shapes: tuple[Shape, ...]) -> Fraction | None:
    """The least time over all mappings and senders; None where a layer has no living owner, 0 before any failure."""
    if problem.current is None:
        return Fraction(0)
    held: dict[int, frozenset[int]] = {}
    for pipeline in problem.current.pipelines:
        for node, layers in zip(pipeline.nodes, _stages(pipeline.layers), strict=True):
            if node not in problem.current.failed:
                held[node] = layers
    listed = {node for pipeline in problem.current.pipelines for node in pipeline.nodes}
    idle = (node for node in range(10**6) if node not in listed)
    held |= {next(idle): frozenset() for _ in range(problem.nodes - len(held))}
    everyone = list(held.values())
    stages = [layers for shape, _ in shapes for layers in _stages(shape)]
    best: int | None = None
    for order in set(permutations(range(len(everyone)), len(stages))):
        needs = [(node, layer) for node, layers in zip(order, stages, strict=True) for layer in layers - everyone[node]]
        best = _least_load(problem, list(held), everyone, needs, best)
    within = 1 if problem.hosts is None else problem.hosts.bytes_per_s
    return None if best is None else Fraction(best * 10**6, within * (problem.bytes_per_s or 1))


def _stages(layers: tuple[int, ...]) -> list[frozenset[int]]:
    return [frozenset(range(sum(layers[:s]), sum(layers[: s + 1]))) for s in range(len(layers))]


def _least_load(
    problem: ReplanProblem,
    names: list[int],
    held: list[frozenset[int]],
    needs: list[tuple[int, int]],
    known: int | None,
) -> int | None:
    """The least busiest node over all choices of senders, or `known` where that is as little.

    In bytes; with hosts each byte counts as often as the other link is fast.
    """

    def load(layer: int, source: int, target: int) -> int:
        extra = problem.first_static_bytes * (layer == 0) + problem.last_static_bytes * (layer == problem.layers - 1)
        size, hosts = problem.layer_static_bytes + extra, problem.hosts
        if hosts is None:
            return size
        near = names[source] // hosts.nodes == names[target] // hosts.nodes
        return size * ((problem.bytes_per_s or 1) if near else hosts.bytes_per_s)

    owners = [[owner for owner, layers in enumerate(held) if layer in layers] for _, layer in needs]
    if not all(owners):
        return known
    best, least = known, [0] * len(held)
    for (target, layer), possible in zip(needs, owners, strict=True):
        least[target] += min(load(layer, owner, target) for owner in possible)

    def choose(number: int, sent: list[int], received: list[int]) -> None:
        nonlocal best
        busiest = max(*least, *sent, *received)
        if best is not None and busiest >= best:
            return
        if number == len(needs):
            best = busiest
            return
        target, layer = needs[number]
        for owner in owners[number]:
            taken = load(layer, owner, target)
            sent[owner] += taken
            received[target] += taken
            choose(number + 1, sent, received)
            sent[owner] -= taken
            received[target] -= taken

    choose(0, [0] * len(held), [0] * len(held))
    return best
