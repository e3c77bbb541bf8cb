"""Optima of tiny pipelines by exhaustion: every partition, every policy of every layer, every use of stalls."""

import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations, combinations_with_replacement, pairwise, product

from msgspec.structs import replace

from solvers.check.pipeline.judge import times_of
from solvers.check.pipeline.step import StageTimes, step_us
from solvers.check.recompute_layer.judge import judge_recompute_layer
from solvers.ir import (
    LayerGroup,
    LayerOp,
    PipelinePlan,
    PipelineProblem,
    PipelineStage,
    RecomputeLayerPlan,
    RecomputeLayerProblem,
    StagePolicies,
    Window,
)
from solvers.ir.pipeline import HideInStalls, PassOrder

HIDES: tuple[HideInStalls, ...] = ("none", "cooldown", "all")
Groups = tuple[LayerGroup, ...]


def random_problem(seed: int) -> PipelineProblem:
    """One to three stages, up to four layers of two or three ops; budgets from too small to ample."""
    source = random.Random(f"pipeline {seed}")
    depth = source.choice([1, 2, 2, 3])
    count = depth + source.randint(0, 1 if depth == 3 else 2)
    ops = tuple(_op(source, i) for i in range(source.choice([2, 2, 3])))
    windows = _windows(source)
    order: PassOrder = source.choice(["1f1b", "1f1b", "gpipe"])
    microbatches = source.randint(1, 4)
    size = sum(op.output_bytes for op in ops)
    stages = tuple(
        PipelineStage(
            budget_bytes=source.randint(3, 3 + source.choice([1, 6, 12, 20]) * (size + 3)) + 3 * depth,
            static_bytes=source.randint(0, 2),
            layer_static_bytes=source.randint(0, 1),
            extra_us=(source.choice([0, 2]), source.choice([0, 4])),
            extra_bytes=source.choice([0, 0, 1]),
        )
        for _ in range(depth)
    )
    return PipelineProblem(
        name=f"pipeline-{seed}",
        layers=count,
        microbatches=microbatches,
        order=order,
        p2p_us=source.choice([0, 0, 1, 5]),
        layer_input_bytes=source.randint(0, 1),
        ops=ops,
        windows=windows,
        backward_us=source.randint(6, 20),
        stages=stages,
    )


def _op(source: random.Random, i: int) -> LayerOp:
    return LayerOp(
        name="flash attention" if i == 1 else f"op{i}",
        time_us=source.randint(1, 9),
        output_bytes=source.randint(1, 5),
        inputs=tuple(j for j in range(i) if source.random() < 0.7),
        comm=i != 1 and source.random() < 0.2,
        needed=i == 0 or source.random() < 0.8,
    )


def _windows(source: random.Random) -> tuple[Window, ...]:
    forward, backward = source.choice([(0, 0), (1, 1), (1, 0), (0, 1), (1, 1)])
    alike = source.randint(1, 6)
    found = [Window(name="f", phase="forward", time_us=source.choice([alike, 2])) for _ in range(forward)]
    found += [Window(name="b", phase="backward", time_us=source.choice([alike, 3])) for _ in range(backward)]
    return tuple(found)


def optimum(problem: PipelineProblem) -> int | None:
    """The least step of any decision; None where none fits."""
    ends = []
    for cuts in combinations(range(1, problem.layers), len(problem.stages) - 1):
        layers = tuple(after - before for before, after in pairwise((0, *cuts, problem.layers)))
        ends += [_best(problem, layers, hide) for hide in HIDES]
    return min((end for end in ends if end is not None), default=None)


def _best(problem: PipelineProblem, layers: tuple[int, ...], hide: HideInStalls) -> int | None:
    known = [stage_times(problem, stage, n, hide) for stage, n in enumerate(layers)]
    if not all(known):
        return None
    return min(
        step_us(list(chosen), problem.microbatches, problem.order, problem.p2p_us, hide) for chosen in product(*known)
    )


@cache
def stage_times(problem: PipelineProblem, stage: int, layers: int, hide: HideInStalls) -> tuple[StageTimes, ...]:
    """The times of all that a stage with so many layers may do; what another one beats in everything left out."""
    found: set[StageTimes] = set()
    for groups in fitting(problem, stage, layers):
        alone = PipelinePlan(
            layers=(layers,) * len(problem.stages),
            stages=(StagePolicies(groups=groups),) * len(problem.stages),
            hide_in_stalls=hide,
        )
        found.add(times_of(problem, alone, stage))
    return tuple(one for one in found if not any(_beats(other, one) for other in found if other != one))


def _beats(first: StageTimes, second: StageTimes) -> bool:
    return (
        first.critical_us <= second.critical_us
        and first.forward_hidden_us <= second.forward_hidden_us
        and first.ahead_us <= second.ahead_us
        and first.may_hide >= second.may_hide
    )


@cache
def fitting(problem: PipelineProblem, stage: int, layers: int) -> tuple[Groups, ...]:
    """All that the stage's layers may do: any policies in any order, told by the last layer's and the others'."""
    asked = layer_problem(problem, stage, layers)
    single = [group for group in policies(problem) if _is_valid(asked, group)]
    found = []
    for last in single:
        for others in combinations_with_replacement(single, layers - 1):
            groups = (*others, last)
            if not judge_recompute_layer(asked, RecomputeLayerPlan(groups=groups)).violations:
                found.append(groups)
    return tuple(found)


def layer_problem(problem: PipelineProblem, stage: int, layers: int) -> RecomputeLayerProblem:
    own, depth = problem.stages[stage], len(problem.stages)
    flying = problem.microbatches if problem.order == "gpipe" else min(depth - stage, problem.microbatches)
    return RecomputeLayerProblem(
        name="a stage",
        layers=layers,
        inflight_microbatches=flying,
        last_stage=stage == depth - 1,
        budget_bytes=own.budget_bytes,
        static_bytes=own.static_bytes + layers * own.layer_static_bytes + flying * own.extra_bytes,
        layer_input_bytes=problem.layer_input_bytes,
        windows=problem.windows,
        ops=problem.ops,
    )


def _is_valid(asked: RecomputeLayerProblem, group: LayerGroup) -> bool:
    plan = RecomputeLayerPlan(groups=(group,) * asked.layers)
    return not [fault for fault in judge_recompute_layer(asked, plan).violations if "bytes" not in fault]


@cache
def policies(problem: PipelineProblem) -> tuple[LayerGroup, ...]:
    """Each op stored, absent, in a window, or on the critical path, in every combination."""
    return tuple(_groups(problem))


def _groups(problem: PipelineProblem) -> Iterator[LayerGroup]:
    for place in product(["stored", "absent", *range(len(problem.windows) + 1)], repeat=len(problem.ops)):
        yield LayerGroup(
            layers=1,
            stored=tuple(i for i, w in enumerate(place) if w == "stored"),
            recomputed=tuple((i, w) for i, w in enumerate(place) if isinstance(w, int)),
        )


def least_budget(problem: PipelineProblem) -> int:
    """The least budget to which lesser ones must be raised, by trying all partitions with every policy."""
    depth = len(problem.stages)
    needs = {
        (stage, n): _least_bytes(problem, stage, n)
        for stage in range(depth)
        for n in range(1, problem.layers - depth + 2)
    }
    found = []
    for cuts in combinations(range(1, problem.layers), depth - 1):
        layers = [after - before for before, after in pairwise((0, *cuts, problem.layers))]
        own = [needs[stage, n] for stage, n in enumerate(layers)]
        found.append(max(n if n > problem.stages[stage].budget_bytes else 0 for stage, n in enumerate(own)))
    return min(found)


def _least_bytes(problem: PipelineProblem, stage: int, layers: int) -> int:
    """By bisection on the budget of the stage, whose policies are tried again each time."""
    low, high = -1, 1 << 12
    while high - low > 1:
        middle = (low + high) // 2
        asked = replace(layer_problem(problem, stage, layers), budget_bytes=middle)
        fits = any(
            not judge_recompute_layer(asked, RecomputeLayerPlan(groups=groups)).violations
            for groups in combinations_with_replacement(
                [group for group in policies(problem) if _is_valid(asked, group)], layers
            )
        )
        low, high = (low, middle) if fits else (middle, high)
    return high
