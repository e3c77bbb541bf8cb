"""Deep pipelines that nobody tuned for: clusters drawn by seed and planned cold, the slowest beside the quickest."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from experiments.bench.figure import Figure
from solvers.ir import Limits, ReplanPlan, ReplanProblem, Solution, Status
from solvers.replan import ExactReplan
from solvers.replan.instances import HOUR_US, Model

GOAL_MS = 1000
SEEDS = range(200, 240)
"""Six were looked at while the search was made quicker; in a third of such clusters no pipeline fits memory."""
LIMITS = Limits(time_s=60)


def deep_cluster(seed: int) -> ReplanProblem:
    """1,000 to 2,048 nodes in pipelines of 33 to 64, with embedding and head, from which one, three or seven are lost.

    Models, memory, microbatches and the time between failures are drawn; depths up to 64 may be planned in half of
    them, up to the running one in the others.
    """
    draw = random.Random(seed)
    depth = draw.randint(33, 64)
    data = draw.randint(-(-1000 // depth), 2048 // depth)
    layers = draw.randint(depth, 2 * depth + 20)
    deepest = draw.choice([depth, min(64, layers)])
    microbatches = data * draw.choice([depth // 2, depth, 2 * depth, 4 * depth])
    model = Model(
        layers=layers,
        hidden=draw.choice([4096, 8192, 12288]),
        ffn=draw.choice([11008, 28672]),
        vocab=draw.choice([32_000, 64_000, 128_256, 256_000]),
        tokens=draw.choice([2048, 4096, 8192]),
        tensor=draw.choice([1, 4, 8]),
    )
    failed = tuple(sorted(draw.sample(range(depth * data), draw.choice([1, 3, 7]))))
    return msgspec.structs.replace(
        model.after(f"deep {seed}", depth, data, microbatches, failed),
        max_depth=min(layers, deepest),
        memory_bytes=draw.choice([32, 40, 64, 80]) << 30,
        expected_interval_us=draw.choice([1, 6, 24]) * HOUR_US,
    )


@dataclass(frozen=True)
class Planned:
    """One cluster's answer, the processor's milliseconds for it, and whether its step, transition apart, is proven."""

    seed: int
    answer: Solution[ReplanPlan]
    processor_ms: float
    step_proven: bool


def planned(seed: int) -> Planned:
    """A cluster planned cold; then once more as if nothing ran, so that only the step counts."""
    began = time.process_time()
    answer = ExactReplan().solve(deep_cluster(seed), LIMITS)
    processor_ms = 1e3 * (time.process_time() - began)
    free = msgspec.structs.replace(
        deep_cluster(seed), current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None
    )
    proven = answer.plan is not None and ExactReplan().solve(free, LIMITS).status is Status.OPTIMAL
    return Planned(seed, answer, processor_ms, proven)


def deep_figures(seeds: Sequence[int] = SEEDS) -> list[Figure]:
    """The slowest cluster over the goal, and over the quickest; clusters in which nothing fits are told apart."""
    found = [planned(seed) for seed in seeds]
    some = sorted((one for one in found if one.answer.plan is not None), key=lambda one: one.processor_ms)
    name = f"exact-replan, {len(some)} random clusters of 33 to 64 stages"
    if not some:
        return [Figure(name, None, "ms", None, "", "no pipelines fit memory in any of them: draw more")]
    slowest, quickest, times = some[-1], some[0], [one.processor_ms for one in some]
    proven = sum(one.step_proven for one in some)
    optimal = sum(one.answer.status is Status.OPTIMAL for one in some)
    gap = max(one.answer.gap or 0 for one in some)
    left = ", ".join(str(one.seed) for one in found if one.answer.status is Status.FEASIBLE)
    proofs = f"steps proven: {proven}, whole objectives: {optimal}, gap ≤ {gap:.1e}" + (
        f", open: {left}" if left else ""
    )
    about = f"seed {slowest.seed}, of the processor; {proofs}"
    apart = f"seed {quickest.seed}; median {median(times):.3g} ms; {len(found) - len(some)} more have no plan"
    return [
        Figure(f"{name}: slowest", times[-1], "ms", times[-1] / GOAL_MS, f"goal of {GOAL_MS} ms", about),
        Figure(f"{name}: quickest", times[0], "ms", times[-1] / times[0], "for the slowest", apart),
    ]
