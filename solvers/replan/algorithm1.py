"""`algorithm1`: the paper's heuristic [R]: near-even depths, proportional batches, near-even layers, or rerouting."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solvers.ir.errors import InvalidInput, require_at_least
from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.replan.answers import Split, better, dynamic, without_plan
from solvers.replan.estimate.memory import least_depth
from solvers.replan.estimate.sync import sync_us
from solvers.replan.even_placements import EvenPlacements, placements_of
from solvers.replan.progress import ENDED, NONE_YET, Progress, Stop, Stopped, never
from solvers.replan.reroute import rerouted


@dataclass(frozen=True)
class Algorithm1:
    """Chameleon's planner, reconstructed [R] from the prose around Algorithm 1 (19 lines, lost in the paper's text).

    Lines 1-7: the nodes are dealt near-evenly to D pipelines, for each D within `delta` of the degree before the
    failure ("often differs by less than 2") whose depths lie in `least_depth` … `most_depth` (None: the least that
    memory allows, the problem's `max_depth`). Lines 8-19: microbatches in proportion to depths, then layers split
    evenly with every place tried for those left over (up to `most_placements`, see `EvenPlacements`), out-of-memory
    ones dropped; least max F5 + synchronization wins. Then F2 compares the plan, its transition included, with
    rerouting (F7), which takes no transition.

    Ours, where the prose is silent: nodes beyond D·`most_depth` stay idle; where no D in the range gives a plan, the
    range widens step by step until one does. The paper searches by step time alone, so that plans are compared before
    their transfers are known. FEASIBLE with bound None; UNKNOWN where it finds nothing but a plan may exist.

    Raises `InvalidInput` where the problem has neither `data_parallel` nor `current`.
    """

    delta: int = 1
    least_depth: int | None = None
    most_depth: int | None = None
    most_placements: int = 1000
    NAME = "algorithm1"

    def __post_init__(self) -> None:
        """Refuse parameters that cannot mean anything."""
        require_at_least(0, delta=self.delta)
        require_at_least(
            1, least_depth=self.least_depth, most_depth=self.most_depth, most_placements=self.most_placements
        )

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        """The better of the heuristic's plan and rerouting, by F2."""
        call, stop = Call(self.NAME, limits), Progress(limits, watch).stop
        splits = self.splits(problem, stop)
        if splits is None:
            reason = NONE_YET if stop() else self._why_none_found(problem)
            planned = without_plan(call, problem, reason)
        else:
            planned = dynamic(call, problem, splits, ENDED if stop() else None)
        if problem.current is None:
            return planned
        return better(planned, rerouted(self.NAME, problem, limits))

    def splits(self, problem: ReplanProblem, stop: Stop = never) -> tuple[Split, ...] | None:
        """The pipelines to re-plan into, not mapped to nodes; None where the search finds none."""
        degree = problem.data_parallel
        if degree is None and problem.current is not None:
            degree = max(1, len(problem.current.pipelines))
        if degree is None:
            raise InvalidInput(
                "algorithm1 searches around the degree before the failure, but the problem has neither data_parallel "
                "nor current: add one of them"
            )
        return self.splits_of(problem, problem.nodes, degree, stop)

    def splits_of(
        self, problem: ReplanProblem, nodes: int, degree: int, stop: Stop = never
    ) -> tuple[Split, ...] | None:
        """The same for `nodes` nodes alive and this degree before the failure; `current` is ignored.

        Where the search has to stop, the best until then.
        """
        least = self.least_depth or least_depth(problem)
        if least is None:
            return None
        most = min(self.most_depth or problem.max_depth, problem.max_depth, problem.layers)
        placements = placements_of(problem, self.most_placements)
        for degrees in _widening(degree, self.delta, min(nodes, problem.microbatches)):
            found: list[tuple[int, tuple[Split, ...]]] = []
            for depths in (near_even_depths(nodes, count, least, most) for count in degrees):
                try:
                    planned = _planned(problem, placements, depths, stop)
                except Stopped:
                    return _fastest(found)
                found += [] if planned is None else [planned]
            if found or stop():
                return _fastest(found)
        return None

    def _why_none_found(self, problem: ReplanProblem) -> str:
        return (
            f"near-even pipelines of the {problem.nodes} nodes fit no node's {problem.memory_bytes} bytes at any "
            "degree: use exact-replan, which leaves nodes idle where that fits"
        )


def _fastest(found: Sequence[tuple[int, tuple[Split, ...]]]) -> tuple[Split, ...] | None:
    """The pipelines of the shortest step, the first of equals; None where there are none."""
    return min(found, key=lambda planned: planned[0])[1] if found else None


def _widening(degree: int, delta: int, most: int) -> Iterator[list[int]]:
    """The degrees within `delta` of the one before, then those one step further away, until all 1…`most` were given."""
    near = range(max(1, degree - delta), min(most, degree + delta) + 1)
    yield list(near)
    for distance in range(delta + 1, max(degree, most) + 1):
        yield [count for count in (degree - distance, degree + distance) if 1 <= count <= most]


def near_even_depths(nodes: int, degree: int, least: int, most: int) -> list[int]:
    """[R] lines 1-7: `nodes` dealt to `degree` pipelines that differ by one; [] where a depth leaves `least` … `most`.

    What is more than `most` a pipeline stays idle.
    """
    every, over = divmod(min(nodes, degree * most), degree)
    return [every + 1] * over + [every] * (degree - over) if every >= least else []


def _planned(
    problem: ReplanProblem, placements: EvenPlacements, depths: Sequence[int], stop: Stop
) -> tuple[int, tuple[Split, ...]] | None:
    """Lines 12-15: step time and pipelines of these depths; None where one of them fits nowhere, or there is none."""
    if not depths:
        return None
    shares = proportional(depths, problem.microbatches)
    placed = {pair: placements.best(*pair, stop) for pair in set(zip(depths, shares, strict=True))}
    slowest = 0
    for placement in placed.values():
        if placement is None:
            return None
        slowest = max(slowest, placement.pipeline_us)
    layers = {pair: placement.layers for pair, placement in placed.items() if placement is not None}
    splits = tuple((layers[pair], pair[1]) for pair in zip(depths, shares, strict=True))
    distinct = list(layers.values()) if len(depths) > 1 else [splits[0][0]]
    sync = sync_us(problem, distinct if len(distinct) > 1 or len(depths) == 1 else distinct * 2)
    return slowest + sync, splits


def proportional(depths: Sequence[int], microbatches: int) -> list[int]:
    """[R] line 13: microbatches in proportion to the nodes, the rest dealt one by one, none left without.

    There are at least as many microbatches as pipelines.
    """
    nodes = sum(depths)
    shares = [microbatches * depth // nodes for depth in depths]
    for number in range(microbatches - sum(shares)):
        shares[number % len(shares)] += 1
    while 0 in shares:
        shares[shares.index(max(shares))] -= 1
        shares[shares.index(0)] += 1
    return shares
