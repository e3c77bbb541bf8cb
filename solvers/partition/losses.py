"""How much the heuristics of this room lose, on random instances that anyone can draw again (README, figures)."""

from collections.abc import Iterable, Sequence

import numpy as np

from solvers.ir.fields import Record
from solvers.ir.partition import PartitionPlan, PartitionProblem
from solvers.ir.solution import Limits, Solution, Solver
from solvers.partition.balanced import Balanced
from solvers.partition.dp import Dp
from solvers.partition.fastest import exact_step
from solvers.partition.greedy import GreedyLynx
from solvers.partition.instances import random_stage_times
from solvers.partition.stage_times import StageTimes, makespans_us
from solvers.partition.table import problem_of_array


class SplitLoss(Record, frozen=True, kw_only=True):
    """One instance's largest stage cost in µs: the optimum and the heuristics' (None: stuck where nothing fits)."""

    seed: int
    stages: int
    layers: int
    dp_us: int
    greedy_us: int | None
    balanced_us: int | None


class StepLoss(Record, frozen=True, kw_only=True):
    """One instance's 1F1B time in µs: the fastest partition's (`exact`: proven), and those of the three solvers."""

    seed: int
    stages: int
    layers: int
    microbatches: int
    fastest_us: int
    bound_us: int
    exact: bool
    dp_us: int
    greedy_us: int | None
    balanced_us: int | None


class LossFigures(Record, frozen=True, kw_only=True):
    """Of instances with a partition: how many are met exactly, how many stuck, and the loss of the others in percent.

    `mean_percent`, `p95_percent` and `max_percent` are over all instances that are not stuck, those met included.
    """

    instances: int
    optimal: int
    stuck: int
    mean_percent: float
    p95_percent: float
    max_percent: float


def split_losses(seeds: Iterable[int]) -> list[SplitLoss]:
    """`greedy-lynx` and `balanced` against `dp` on the seeds' instances; those without a partition are left out."""
    rows = []
    for seed in seeds:
        times = random_stage_times(seed)
        dp, greedy, balanced = _answers(times)
        if dp.objective is not None:
            rows.append(
                SplitLoss(
                    seed=seed,
                    stages=times.stages,
                    layers=times.layers,
                    dp_us=dp.objective,
                    greedy_us=greedy.objective,
                    balanced_us=balanced.objective,
                )
            )
    return rows


def step_losses(
    seeds: Iterable[int], stages: int, layers: int, microbatches: int, limits: Limits | None = None
) -> list[StepLoss]:
    """The 1F1B times of the solvers' partitions beside the fastest one's, on the seeds' instances of one shape."""
    rows = []
    for seed in seeds:
        times = random_stage_times(seed, stages, layers)
        fastest = exact_step(times, microbatches, limits=limits)
        if fastest.makespan_us is None or fastest.bound_us is None:
            continue
        dp, greedy, balanced = (_step_us(times, answer, microbatches) for answer in _answers(times))
        assert dp is not None, "the recursion finds every partition that fits"
        rows.append(
            StepLoss(
                seed=seed,
                stages=stages,
                layers=layers,
                microbatches=microbatches,
                fastest_us=fastest.makespan_us,
                bound_us=fastest.bound_us,
                exact=fastest.exact,
                dp_us=dp,
                greedy_us=greedy,
                balanced_us=balanced,
            )
        )
    return rows


def figures(found: Sequence[int | None], best: Sequence[int]) -> LossFigures:
    """What a heuristic's values lose against the best ones, instance by instance (None: stuck)."""
    pairs = [(value, least) for value, least in zip(found, best, strict=True) if value is not None]
    losses = np.array([100 * (value / least - 1) for value, least in pairs]) if pairs else np.zeros(1)
    return LossFigures(
        instances=len(best),
        optimal=sum(value == least for value, least in pairs),
        stuck=len(best) - len(pairs),
        mean_percent=float(losses.mean()),
        p95_percent=float(np.quantile(losses, 0.95)),
        max_percent=float(losses.max()),
    )


def _answers(times: StageTimes) -> list[Solution[PartitionPlan]]:
    """`dp`, `greedy-lynx` and `balanced` on the instance's costs."""
    problem, limits = problem_of_array("random", times.costs_us()), Limits()
    solvers: tuple[Solver[PartitionProblem, Solution[PartitionPlan]], ...] = (Dp(), GreedyLynx(), Balanced())
    return [solver.solve(problem, limits) for solver in solvers]


def _step_us(times: StageTimes, answer: Solution[PartitionPlan], microbatches: int) -> int | None:
    if answer.plan is None:
        return None
    return int(makespans_us(times, [answer.plan.layers], microbatches)[0])
