"""Plans after a failure, cold and cached, from 8 nodes to 2,048: how long they take, and what Algorithm 1 loses."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from experiments.bench.figure import Figure
from solvers.ir import Limits, ReplanPlan, ReplanProblem, Solution
from solvers.replan import Algorithm1, ExactReplan, PlanCache
from solvers.replan.instances import HOUR_US, Model

WARM_GOAL_MS = 1
LIMITS = Limits(time_s=60)


@dataclass(frozen=True)
class Cluster:
    """Pipelines of `depth` nodes, `data` of them, before the failure; memory and the head make splits uneven."""

    layers: int
    depth: int
    data: int
    microbatches: int
    lost: int
    memory_gib: int
    goal_ms: int
    head: bool = True

    @property
    def name(self) -> str:
        """Nodes before the failure, how many are lost, and what shapes the splits."""
        nodes = f"{self.depth * self.data} nodes less {self.lost}"
        return f"{nodes}, {self.memory_gib} GiB{'' if self.head else ', no head'}"

    def problem(self) -> ReplanProblem:
        """What is to be planned; the lost nodes are spread over stages and pipelines."""
        failed = tuple(293 * number % (self.depth * self.data) for number in range(self.lost))
        model = Model(layers=self.layers, vocab=64_000)
        problem = model.after(self.name, self.depth, self.data, self.microbatches, failed)
        problem = msgspec.structs.replace(problem, memory_bytes=self.memory_gib << 30, expected_interval_us=6 * HOUR_US)
        if self.head:
            return problem
        return msgspec.structs.replace(problem, last_extra_us=(0, 0), last_static_bytes=0)


CLUSTERS = (
    Cluster(layers=32, depth=4, data=2, microbatches=64, lost=1, memory_gib=64, goal_ms=100),
    Cluster(layers=32, depth=4, data=8, microbatches=64, lost=3, memory_gib=48, goal_ms=100),
    Cluster(layers=32, depth=8, data=32, microbatches=256, lost=1, memory_gib=30, goal_ms=100),
    Cluster(layers=32, depth=8, data=32, microbatches=256, lost=7, memory_gib=64, goal_ms=100),
    Cluster(layers=80, depth=16, data=64, microbatches=1024, lost=3, memory_gib=40, goal_ms=500),
    Cluster(layers=80, depth=16, data=128, microbatches=2048, lost=1, memory_gib=64, goal_ms=1000),
    Cluster(layers=80, depth=16, data=128, microbatches=2048, lost=7, memory_gib=64, goal_ms=1000),
    Cluster(layers=80, depth=16, data=128, microbatches=2048, lost=1, memory_gib=40, goal_ms=1000),
    Cluster(layers=80, depth=16, data=128, microbatches=2048, lost=7, memory_gib=40, goal_ms=1000),
    Cluster(layers=80, depth=16, data=128, microbatches=2048, lost=7, memory_gib=40, goal_ms=1000, head=False),
)


def replan_figures(runs: int, clusters: Sequence[Cluster] = CLUSTERS) -> list[Figure]:
    """Median times of `runs` runs; `exact-replan` keeps nothing between them, Algorithm 1 the placements."""
    return [figure for cluster in clusters for figure in _cluster_figures(cluster, runs)]


def _cluster_figures(cluster: Cluster, runs: int) -> list[Figure]:
    exact, exact_ms, processor_ms = _timed(lambda: ExactReplan().solve(cluster.problem(), LIMITS), runs)
    heuristic, heuristic_ms, _ = _timed(lambda: Algorithm1().solve(cluster.problem(), LIMITS), runs)
    problem, cache = cluster.problem(), PlanCache(ExactReplan())
    cache.solve(problem, LIMITS)
    _, warm_ms, _ = _timed(lambda: cache.solve(problem, LIMITS), runs)
    about = f"{exact.status.value}, gap {exact.gap or 0:.1e}, {_plan_in_words(exact)}; processor {processor_ms:.3g} ms"
    goal = f"goal of {cluster.goal_ms} ms"
    return [
        Figure(f"exact-replan, {cluster.name}", exact_ms, "ms", exact_ms / cluster.goal_ms, goal, about),
        Figure(f"algorithm1, {cluster.name}", heuristic_ms, "ms", *_lost(heuristic, exact)),
        Figure(
            f"cached, {cluster.name}", warm_ms, "ms", warm_ms / WARM_GOAL_MS, f"goal of {WARM_GOAL_MS} ms", "lookup"
        ),
    ]


def _timed(solve: Callable[[], Solution[ReplanPlan]], runs: int) -> tuple[Solution[ReplanPlan], float, float]:
    """The answer, and the median milliseconds on the clock and of the processor; the problem is made anew each time."""
    clock, processor = [], []
    for _ in range(runs):
        began, used = time.perf_counter(), time.process_time()
        answer = solve()
        clock.append(1e3 * (time.perf_counter() - began))
        processor.append(1e3 * (time.process_time() - used))
    return answer, median(clock), median(processor)


def _lost(heuristic: Solution[ReplanPlan], exact: Solution[ReplanPlan]) -> tuple[float | None, str, str]:
    """Algorithm 1's objective over the exact one's."""
    if heuristic.objective is None or exact.objective is None:
        return None, "", heuristic.reason or heuristic.status.value
    return heuristic.objective / exact.objective, "exact-replan's objective", _plan_in_words(heuristic)


def _plan_in_words(answer: Solution[ReplanPlan]) -> str:
    """`reroute`, or how many pipelines of which depths."""
    if answer.plan is None or answer.plan.policy == "reroute":
        return "no plan" if answer.plan is None else "reroute"
    depths = [len(pipeline.layers) for pipeline in answer.plan.pipelines]
    return ", ".join(f"{depths.count(depth)} x {depth} stages" for depth in sorted(set(depths), reverse=True))
