"""What a replan problem is but for the names of its nodes: equal structures have equal plans, renamed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from solvers.ir.replan import NewPipeline, ReplanPlan, ReplanProblem, Transfer
from solvers.replan.even_placements import model_of
from solvers.replan.transfer.owners import idle_nodes

Kind = tuple[tuple[int, ...], int, tuple[int, ...]]
"""Running pipelines that are interchangeable: layers per stage, microbatches, and the stages that failed."""

Key = tuple[object, ...]


@dataclass(frozen=True)
class Structure:
    """A problem's key, equal for problems that differ by the names of nodes only, and its nodes in the key's order.

    The order lists pipelines by kind, and within a kind as they come. Two problems of one key are mapped onto each
    other by giving the i-th node of one the name of the i-th of the other: pipelines go to pipelines of the same kind,
    stage to stage, the failed to the failed. Idle nodes come behind, in ascending order; they all are alike.
    """

    key: Key
    nodes: Sequence[int]


def structure_of(problem: ReplanProblem) -> Structure:
    """The structure of a problem; without `current` no node has a name, and the problem is its own key."""
    rates = (problem.nodes, problem.data_parallel, problem.restart_us, problem.bytes_per_s)
    places: Key | None = None
    if problem.hosts is not None and problem.current is not None:  # where nodes stand, names matter
        places = (problem.hosts, problem.current.pipelines, frozenset(problem.current.failed))
    known = (model_of(problem), *rates, problem.expected_interval_us, places)
    if problem.current is None:
        return Structure(known, ())
    kinds = sorted(kinds_of(problem).items())
    nodes = [node for _, alike in kinds for names in alike for node in names]
    return Structure((*known, *((kind, len(alike)) for kind, alike in kinds)), nodes)


def kinds_of(problem: ReplanProblem) -> dict[Kind, list[tuple[int, ...]]]:
    """The nodes of the running pipelines of each kind."""
    kinds: dict[Kind, list[tuple[int, ...]]] = {}
    if problem.current is None:
        return kinds
    gone = frozenset(problem.current.failed)
    for pipeline in problem.current.pipelines:
        stages: tuple[int, ...] = ()
        if not gone.isdisjoint(pipeline.nodes):
            stages = tuple(stage for stage, node in enumerate(pipeline.nodes) if node in gone)
        kinds.setdefault((pipeline.layers, pipeline.microbatches, stages), []).append(pipeline.nodes)
    return kinds


@dataclass(frozen=True)
class NamelessPlan:
    """A plan whose nodes are places in a structure's order; idle nodes are numbered behind them."""

    policy: str
    shapes: tuple[tuple[tuple[int, ...], int], ...]
    places: tuple[int, ...] | None
    transfers: tuple[tuple[int, int, int], ...] | None

    def named(self, problem: ReplanProblem, structure: Structure) -> ReplanPlan:
        """The plan for a problem of the structure."""
        if self.policy == "reroute":
            return ReplanPlan(policy="reroute", pipelines=(), transfers=None)
        names: Sequence[int] = structure.nodes
        if self.places is not None and any(place >= len(names) for place in self.places):
            names = [*names, *idle_nodes(problem)]
        transfers = self.transfers
        return ReplanPlan(
            policy="dynamic",
            pipelines=self._pipelines(names),
            transfers=None
            if transfers is None
            else tuple(Transfer(layer=layer, source=names[a], target=names[b]) for layer, a, b in transfers),
        )

    def _pipelines(self, names: Sequence[int]) -> tuple[NewPipeline, ...]:
        if self.places is None:
            return tuple(NewPipeline(layers=layers, microbatches=count, nodes=None) for layers, count in self.shapes)
        nodes = map(names.__getitem__, self.places)
        return tuple(
            NewPipeline(layers=layers, microbatches=count, nodes=tuple(islice(nodes, len(layers))))
            for layers, count in self.shapes
        )


def nameless(problem: ReplanProblem, structure: Structure, plan: ReplanPlan) -> NamelessPlan:
    """The plan with places in the structure's order instead of nodes."""
    shapes = tuple((pipeline.layers, pipeline.microbatches) for pipeline in plan.pipelines)
    if any(pipeline.nodes is None for pipeline in plan.pipelines):
        return NamelessPlan(plan.policy, shapes, None, None)
    names = [*structure.nodes, *idle_nodes(problem)] if problem.current is not None else list(range(problem.nodes))
    place = {name: number for number, name in enumerate(names)}
    places = tuple(place[node] for pipeline in plan.pipelines for node in pipeline.nodes or ())
    transfers = None
    if plan.transfers is not None:
        transfers = tuple((moved.layer, place[moved.source], place[moved.target]) for moved in plan.transfers)
    return NamelessPlan(plan.policy, shapes, places, transfers)
