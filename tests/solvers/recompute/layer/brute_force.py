"""The meaning of a layer policy (formats.md 5), written again as plainly as possible, and optima by exhaustion."""

import random
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Final, Literal

from msgspec.structs import replace

from solvers.ir import LayerOp, RecomputeLayerProblem, Window

ABSENT: Final = "absent"
STORED: Final = "stored"
Place = int | Literal["absent", "stored"]
"""A window's number (their number: the critical path), stored, or absent."""
Figures = tuple[int, int, int, int, int]
"""(time on the critical path, stored, forward, working bytes, time in backward windows) of one layer."""


def figures(problem: RecomputeLayerProblem, places: tuple[Place, ...]) -> Figures | None:
    """What a policy costs one layer; None where it is invalid."""
    critical = len(problem.windows)
    spent = [0] * (critical + 1)
    stored = forward = working = late = 0
    again = problem.again_bytes or tuple(op.output_bytes for op in problem.ops)
    for op, place, size in zip(problem.ops, places, again, strict=True):
        if place == ABSENT:
            if op.needed:
                return None
        elif place == STORED:
            stored += op.output_bytes
        else:
            assert isinstance(place, int)
            for source in op.inputs:
                there = places[source]
                if there == ABSENT or (there != STORED and there > place):
                    return None
            spent[place] += op.time_us
            phase = "critical" if place == critical else problem.windows[place].phase
            if phase != "critical" and (op.comm or (phase == "forward" and problem.last_stage)):
                return None
            forward += op.output_bytes if phase == "forward" else 0
            late += op.time_us if phase == "backward" else 0
            working += size * {"forward": 0, "backward": 2, "stall": 2, "critical": 1}[phase]
    if any(spent[w] > window.time_us for w, window in enumerate(problem.windows)):
        return None
    return spent[critical], stored, forward, working, late


def all_policies(problem: RecomputeLayerProblem) -> set[tuple[int, int, int, int]]:
    """The first four figures of every valid policy."""
    return {each[:4] for each in every_figure(problem)}


def every_figure(problem: RecomputeLayerProblem) -> set[Figures]:
    """The figures of every valid policy."""
    choices: list[Place] = [ABSENT, STORED, *range(len(problem.windows) + 1)]
    found = (figures(problem, places) for places in product(choices, repeat=len(problem.ops)))
    return {each for each in found if each is not None}


def memory(problem: RecomputeLayerProblem, mix: tuple[tuple[int, ...], ...]) -> int:
    """The bytes of a policy for each layer."""
    held = sum(each[1] + problem.layer_input_bytes for each in mix)
    waiting = sum(each[2] for each in mix)
    return problem.static_bytes + problem.inflight_microbatches * held + waiting + max(each[3] for each in mix)


@cache
def mixes(problem: RecomputeLayerProblem, most: int | None = None) -> tuple[int | None, int]:
    """(the least time within the budget with at most so many policies, the least budget)."""
    best, least = None, None
    for mix in combinations_with_replacement(sorted(every_figure(problem)), problem.layers):
        if most is not None and len(set(mix)) > most:
            continue
        needed = memory(problem, mix)
        least = needed if least is None else min(least, needed)
        time_us = sum(each[0] for each in mix)
        if problem.last_windowless:  # the last layer is whichever has least in backward windows
            time_us += min(each[4] for each in mix)
        if needed <= problem.budget_bytes and (best is None or time_us < best):
            best = time_us
    assert least is not None, "storing everything is always a policy"
    return best, least


def optimum(problem: RecomputeLayerProblem) -> int | None:
    """The least objective of any decision, whatever its number of groups; None where none fits."""
    return mixes(problem)[0]


def random_problem(seed: int, max_ops: int = 4, max_windows: int = 2, max_layers: int = 3) -> RecomputeLayerProblem:
    """A tiny stage with contention: chains that branch, windows that some ops fit, a budget that binds."""
    source = random.Random(seed)
    windows = [
        Window(name=f"w{k}", phase=source.choice(["forward", "backward", "stall"]), time_us=source.randint(0, 8))
        for k in range(source.randint(0, max_windows))
    ]
    ops = [
        LayerOp(
            name=f"op {i}",
            time_us=source.randint(0, 6),
            output_bytes=source.randint(0, 6),
            inputs=tuple(sorted(source.sample(range(i), min(i, source.choice([0, 1, 1, 2]))))),
            comm=source.random() < 0.2,
            needed=source.random() < 0.7,
        )
        for i in range(source.randint(1, max_ops))
    ]
    layers, inflight = source.randint(1, max_layers), source.randint(1, 3)
    problem = RecomputeLayerProblem(
        name=f"tiny {seed}",
        layers=layers,
        inflight_microbatches=inflight,
        last_stage=source.random() < 0.25,
        budget_bytes=0,
        static_bytes=source.randint(0, 3),
        layer_input_bytes=source.randint(0, 3),
        windows=tuple(windows),
        ops=with_attention(ops, source),
    )
    return with_budget(problem, source)


def with_attention(ops: list[LayerOp], source: random.Random) -> tuple[LayerOp, ...]:
    """The ops with an attention core by name: an op and one that it is computed from, or an op alone."""
    last = first = source.randrange(len(ops))
    while ops[first].inputs and source.random() < 0.7:
        first = source.choice(ops[first].inputs)
    names = {first: "flash attention"} if first == last else {first: "scores", last: "context"}
    return tuple(replace(op, name=names.get(i, op.name)) for i, op in enumerate(ops))


def with_budget(problem: RecomputeLayerProblem, source: random.Random) -> RecomputeLayerProblem:
    """The problem with a budget between a little too small and ample."""
    every = sum(op.output_bytes for op in problem.ops if op.needed)
    ample = problem.static_bytes + problem.inflight_microbatches * problem.layers * (problem.layer_input_bytes + every)
    least = min(memory(problem, (policy,) * problem.layers) for policy in all_policies(problem))
    low, high = max(0, least - 1), max(least, ample)
    pick = source.choice([min, max])
    return replace(problem, budget_bytes=pick(source.randint(low, high), source.randint(low, high)))


def best_single(problem: RecomputeLayerProblem) -> int | None:
    """The least objective of one policy, by trying every place of every op; branches that cannot win are left out."""
    critical, layers = len(problem.windows), problem.layers
    unit = [layers if w.phase == "forward" else 2 for w in problem.windows] + [1]
    closed = [w.phase == "forward" and problem.last_stage for w in problem.windows] + [False]
    fixed = problem.static_bytes + problem.inflight_microbatches * layers * problem.layer_input_bytes
    to_come = [sum(op.output_bytes for op in problem.ops[i:] if op.needed) for i in range(len(problem.ops) + 1)]
    left = [window.time_us for window in problem.windows]
    when: list[int] = []
    best: list[int | None] = [None]

    def place(i: int, time_us: int, used: int) -> None:
        if used + to_come[i] > problem.budget_bytes or (best[0] is not None and time_us >= best[0]):
            return
        if i == len(problem.ops):
            best[0] = time_us
            return
        op = problem.ops[i]
        for w in (-1, *range(critical), critical, critical + 1):  # stored, windows, critical path, absent
            again = 0 <= w <= critical
            if again and (closed[w] or any(when[j] > w for j in op.inputs) or (op.comm and w < critical)):
                continue
            if (w < critical and again and op.time_us > left[w]) or (w > critical and op.needed):
                continue
            size = unit[w] if again else problem.inflight_microbatches * layers if w < 0 else 0
            spent = op.time_us if w == critical else 0
            if again and w < critical:
                left[w] -= op.time_us
            when.append(w)
            place(i + 1, time_us + spent, used + size * op.output_bytes)
            when.pop()
            if again and w < critical:
                left[w] += op.time_us

    place(0, 0, fixed)
    return None if best[0] is None else layers * best[0]
