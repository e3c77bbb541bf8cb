"""`oobleck`: pipelines from templates; a short one borrows a node, else two merge (Oobleck, SOSP 2023, [R])."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

from solvers.ir.errors import require_at_least
from solvers.ir.names import unknown
from solvers.ir.replan import CurrentState, ReplanPlan, ReplanProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.replan.algorithm1 import near_even_depths
from solvers.replan.answers import Split, dynamic, without_plan
from solvers.replan.estimate.sync import sync_us
from solvers.replan.oobleck_batches import Batches, shares_of
from solvers.replan.oobleck_templates import Template, template_depths, template_of, templates_of
from solvers.replan.progress import ENDED, NONE_YET, Progress, Stop, Stopped, never

Below = Literal["continue", "stop"]
"""What happens below the nodes that the guarantee needs."""
DEEPEST_SEARCH = 100
"""The most pipelines for which combinations of templates are listed one by one."""


@dataclass(frozen=True)
class Oobleck:
    """Resilient training by pipeline templates, as its paper describes it; a node runs one stage here.

    **Modelled.** Templates of consecutive depths from n0 on, the least that memory allows with a full pipeline in
    flight (or `least_depth`), layers by divide and conquer. Instantiation: at least `faults` + 1 pipelines together
    using as many nodes as possible, the fastest combination of templates (all of them up to `most_instantiations`;
    beyond, near-even ones for as many numbers of pipelines). After a failure: a pipeline that lost nodes takes the
    template of what it has left; with fewer than n0 it takes idle nodes, then borrows from the deepest pipeline, and
    where none can spare one, it merges with the shortest. Idle nodes then make new pipelines, or deepen the shortest.
    `batches`: microbatches by time (its paper's rule: balanced pipelines), by nodes, or equally. `below`: with fewer
    than (`faults` + 1)·n0 nodes its paper stops; `continue` goes on while one template fits.

    **Not modelled.** GPUs of one node sharing a stage; its copying of states: nodes and transfers are `restore`'s
    (Kuhn-Munkres, senders by max-flow), parameters and optimizer states alike, which is generous to it; its own time
    to reconfigure, which is the problem's `restart_us`. FEASIBLE with bound None.
    """

    faults: int = 1
    batches: Batches = "balanced"
    below: Below = "continue"
    least_depth: int | None = None
    most_instantiations: int = 200
    NAME = "oobleck"

    def __post_init__(self) -> None:
        """Refuse unknown rules and parameters that cannot mean anything."""
        if self.batches not in get_args(Batches):
            raise unknown("choice for batches", self.batches, get_args(Batches))
        if self.below not in get_args(Below):
            raise unknown("choice for below", self.below, get_args(Below))
        require_at_least(0, faults=self.faults)
        require_at_least(1, least_depth=self.least_depth, most_instantiations=self.most_instantiations)

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        """The pipelines after the failure, or instantiated from nothing."""
        call, stop = Call(self.NAME, limits), Progress(limits, watch).stop
        splits = self.splits(problem, stop)
        if splits is None:
            reason = NONE_YET if stop() else self._why_none_found(problem)
            return without_plan(call, problem, reason)
        return dynamic(call, problem, splits, ENDED if stop() else None)

    def splits(self, problem: ReplanProblem, stop: Stop = never) -> tuple[Split, ...] | None:
        """The pipelines, not mapped to nodes; None where the templates, or those known in time, give none."""
        if problem.current is None:
            return self.start(problem, problem.nodes, stop)
        alive = nodes_left(problem.current)
        return self.after(problem, alive, problem.nodes - sum(alive), stop)

    def start(self, problem: ReplanProblem, nodes: int, stop: Stop = never) -> tuple[Split, ...] | None:
        """The fastest instantiation of templates on `nodes` nodes; `nodes` and `current` of the problem are ignored."""
        templates = self._templates(problem, stop)
        if not templates or self._stopped(templates[0].depth, nodes):
            return None
        options = _instantiations(
            templates,
            nodes,
            min(self.faults + 1, nodes // templates[0].depth),
            problem.microbatches,
            self.most_instantiations,
        )
        best: tuple[int, tuple[Split, ...]] | None = None
        for depths in options:
            made = self._dealt(problem, templates, depths)
            best = made if best is None or (made is not None and made[0] < best[0]) else best
            if stop() and best is not None:
                break
        return None if best is None else best[1]

    def after(
        self, problem: ReplanProblem, alive: Sequence[int], idle: int = 0, stop: Stop = never
    ) -> tuple[Split, ...] | None:
        """The pipelines after a failure that left each of them some nodes, with some nodes standing idle."""
        every = template_depths(problem, self.least_depth or 1)
        if not every or self._stopped(every[0], sum(alive) + idle):
            return None
        try:
            depths = regrouped(alive, idle, every[0], every[-1], stop)
            deepest = sorted(depths, reverse=True)[: problem.microbatches]
            some = [template_of(problem, depth, stop) for depth in sorted(set(deepest))]
        except Stopped:
            return None
        dealt = self._dealt(problem, [template for template in some if template is not None], deepest)
        return None if dealt is None else dealt[1]

    def _templates(self, problem: ReplanProblem, stop: Stop = never) -> tuple[Template, ...]:
        """Templates of consecutive depths: those beyond a depth that does not fit are left out."""
        templates = templates_of(problem, self.least_depth or 1, stop)
        first = templates[0].depth if templates else 0
        return tuple(found for number, found in enumerate(templates) if found.depth == first + number)

    def _stopped(self, least: int, nodes: int) -> bool:
        return nodes < (least if self.below == "continue" else (self.faults + 1) * least)

    def _dealt(
        self, problem: ReplanProblem, templates: Sequence[Template], depths: Sequence[int]
    ) -> tuple[int, tuple[Split, ...]] | None:
        """Step time and pipelines of these depths; None where there are none, or fewer microbatches."""
        if not 1 <= len(depths) <= problem.microbatches:
            return None
        by_depth = {template.depth: template for template in templates}
        rows = {depth: by_depth[depth].row_us for depth in set(depths)}
        shares = shares_of(depths, problem.microbatches, rows, self.batches)
        slowest = max(int(rows[depth][share]) for depth, share in set(zip(depths, shares, strict=True)))
        splits = tuple((by_depth[depth].layers, share) for depth, share in zip(depths, shares, strict=True))
        return slowest + sync_us(problem, [layers for layers, _ in splits]), splits

    def _why_none_found(self, problem: ReplanProblem) -> str:
        depths = template_depths(problem, self.least_depth or 1)
        if not depths:
            return (
                f"no template fits a node's {problem.memory_bytes} bytes with a full pipeline in flight: use "
                "exact-replan, which counts the microbatches that there are"
            )
        if self._stopped(depths[0], problem.nodes):
            least = depths[0] * (1 if self.below == "continue" else self.faults + 1)
            return (
                f"{problem.nodes} nodes are alive, but oobleck goes on with {least} or more: add nodes, or lower faults"
            )
        return "no combination of templates has a microbatch for each pipeline: give more microbatches"


def nodes_left(current: CurrentState) -> list[int]:
    """The living nodes of each running pipeline."""
    gone = set(current.failed)
    return [len(pipeline.nodes) - len(gone.intersection(pipeline.nodes)) for pipeline in current.pipelines]


def regrouped(alive: Sequence[int], idle: int, least: int, most: int, stop: Stop = never) -> list[int]:
    """Depths after a failure: short pipelines take idle nodes, borrow from the deepest, else merge with the shortest.

    Nodes beyond `most` a pipeline become idle; idle ones make new pipelines of `least`, then deepen the shortest.
    Empty where there are fewer than `least` nodes in all. `Stopped` where the search has to stop.
    """
    depths = [min(count, most) for count in alive if count > 0]
    idle += sum(alive) - sum(depths)
    while depths and min(depths) < least:
        short = depths.index(min(depths))
        deepest = depths.index(max(depths))
        if stop():
            raise Stopped
        if idle > 0:
            idle -= 1
            depths[short] += 1
        elif depths[deepest] > least:
            depths[deepest] -= 1
            depths[short] += 1
        else:
            freed = depths.pop(short)
            if not depths:
                return []
            partner = depths.index(min(depths))
            merged = min(most, depths[partner] + freed)
            idle += depths[partner] + freed - merged
            depths[partner] = merged
    return _with_idle(depths, idle, least, most)


def _with_idle(depths: list[int], idle: int, least: int, most: int) -> list[int]:
    """The idle nodes as new pipelines of the least depth, the rest one by one to the shortest pipelines."""
    depths = depths + [least] * (idle // least)
    idle %= least
    while idle > 0 and depths and min(depths) < most:
        depths[depths.index(min(depths))] += 1
        idle -= 1
    return depths


def _instantiations(
    templates: Sequence[Template], nodes: int, fewest: int, microbatches: int, most: int
) -> list[list[int]]:
    """Combinations of template depths, of at least `fewest` pipelines, that use as many nodes as they can.

    All of them, if they are at most `most`; else near-even ones, for at most `most` numbers of pipelines in even steps.
    """
    least, deepest = templates[0].depth, templates[-1].depth
    counts = range(max(1, fewest), min(nodes // least, microbatches) + 1)
    counts = counts[:: -(-len(counts) // most) or 1]
    near = [depths for count in counts if (depths := near_even_depths(nodes, count, least, deepest))]
    used = max((sum(depths) for depths in near), default=0)
    near = [depths for depths in near if sum(depths) == used]
    if used > deepest * DEEPEST_SEARCH:
        return near
    every = list(islice(_partitions(used, least, deepest), most + 1))
    return near if len(every) > most else [depths for depths in every if fewest <= len(depths) <= microbatches]


def _partitions(nodes: int, least: int, most: int) -> Iterator[list[int]]:
    """Every way to write `nodes` as a sum of depths, descending."""
    if nodes == 0:
        yield []
    for depth in range(min(nodes, most), least - 1, -1):
        if nodes - depth == 0 or nodes - depth >= least:
            for rest in _partitions(nodes - depth, least, depth):
                yield [depth, *rest]
