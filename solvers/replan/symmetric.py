"""`symmetric`: Varuna's plan, the best grid of alike pipelines; what the grid does not use stands idle."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

from solvers.ir.errors import require_at_least
from solvers.ir.names import unknown
from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.replan.answers import Split, dynamic, without_plan
from solvers.replan.estimate.sync import sync_us
from solvers.replan.even_placements import EvenPlacements, placements_of
from solvers.replan.progress import ENDED, NONE_YET, Progress, Stop, Stopped, never

GridBatches = Literal["even", "equal"]


@dataclass(frozen=True)
class Symmetric:
    """The fastest P x D grid of at most the nodes alive, the layers split near-evenly (Varuna, EuroSys 2022; Parcae).

    `batches`: `equal` as in Varuna (D divides the microbatches), `even` lets pipelines differ by one. All pipelines
    have the same layers a stage: the best near-even split for the fullest one (`EvenPlacements`). Not modelled:
    Varuna's choice of the microbatch's size, and its tracing of links. FEASIBLE with bound None.
    """

    batches: GridBatches = "even"
    most_placements: int = 1000
    NAME = "symmetric"

    def __post_init__(self) -> None:
        """Refuse an unknown rule and no placements."""
        if self.batches not in get_args(GridBatches):
            raise unknown("choice for batches", self.batches, get_args(GridBatches))
        require_at_least(1, most_placements=self.most_placements)

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        """The grid of least step time, on the nodes where it moves least."""
        call, stop = Call(self.NAME, limits), Progress(limits, watch).stop
        splits = self.splits_of(problem, problem.nodes, stop)
        if splits is None:
            reason = (
                NONE_YET
                if stop()
                else (
                    f"no grid of near-even stages fits a node's {problem.memory_bytes} bytes: use exact-replan, which "
                    "splits layers unevenly too"
                )
            )
            return without_plan(call, problem, reason)
        return dynamic(call, problem, splits, ENDED if stop() else None)

    def splits(self, problem: ReplanProblem, stop: Stop = never) -> tuple[Split, ...] | None:
        """The alike pipelines, not mapped to nodes; None where no grid fits."""
        return self.splits_of(problem, problem.nodes, stop)

    def splits_of(self, problem: ReplanProblem, nodes: int, stop: Stop = never) -> tuple[Split, ...] | None:
        """The same for `nodes` nodes; `nodes` and `current` of the problem are ignored.

        Where the search has to stop, the best grid until then.
        """
        placements = placements_of(problem, self.most_placements)
        depths = range(1, min(problem.max_depth, problem.layers, nodes) + 1)
        wide = ((depth, self._shares(problem, depth, nodes)) for depth in depths)
        alone = ((depth, [problem.microbatches]) for depth in depths)
        best: tuple[int, tuple[Split, ...]] | None = None
        for depth, shares in chain(wide, alone):
            if not shares or (best is not None and _least_us(problem, depth, shares) >= best[0]):
                continue
            try:
                found = _timed(problem, placements, depth, shares, stop)
            except Stopped:
                break
            best = found if best is None or (found is not None and found[0] < best[0]) else best
        return None if best is None else best[1]

    def grid(self, problem: ReplanProblem, nodes: int, depth: int) -> tuple[Split, ...] | None:
        """As many pipelines of this depth as the nodes give; None where none fits."""
        shares = self._shares(problem, depth, nodes)
        found = _timed(problem, placements_of(problem, self.most_placements), depth, shares) if shares else None
        return None if found is None else found[1]

    def _shares(self, problem: ReplanProblem, depth: int, nodes: int) -> list[int]:
        """For one depth the widest grid is the fastest, unless one pipeline without synchronization is; [] if none."""
        degree = min(nodes // depth, problem.microbatches)
        if self.batches == "equal":
            degree = next(_divisors(problem.microbatches, degree), 0)
        return even_shares(problem.microbatches, degree) if degree else []


def _timed(
    problem: ReplanProblem, placements: EvenPlacements, depth: int, shares: list[int], stop: Stop = never
) -> tuple[int, tuple[Split, ...]] | None:
    placed = placements.best(depth, shares[0], stop)
    if placed is None:
        return None
    sync = sync_us(problem, [placed.layers] * min(2, len(shares)))
    return placed.pipeline_us + sync, tuple((placed.layers, share) for share in shares)


def _least_us(problem: ReplanProblem, depth: int, shares: list[int]) -> int:
    """No such grid has a shorter step.

    The first microbatch goes through all stages and comes back to the fullest one, which then does what is left, and
    the last one goes on from there; nor can the stages together do it sooner.
    """
    one, fullest, count = problem.forward_us + problem.backward_us, -(-problem.layers // depth), shares[0]
    alone = problem.layers * one + sum(problem.first_extra_us) + sum(problem.last_extra_us)
    left = (count - 1) * problem.backward_us + max(0, count - depth) * problem.forward_us
    least = max(alone + 2 * (depth - 1) * problem.p2p_us + fullest * left, -(-count * alone // depth))
    return least + sync_us(problem, [(fullest,)] * min(2, len(shares)))


def _divisors(number: int, most: int) -> Iterator[int]:
    """The divisors of a number up to `most`, the largest first."""
    return (divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)


def even_shares(microbatches: int, degree: int) -> list[int]:
    """Microbatches of each pipeline, differing by one at most, the larger shares first."""
    every, over = divmod(microbatches, degree)
    return [every + 1] * over + [every] * (degree - over)
