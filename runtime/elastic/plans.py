"""From who is left to who does what: plans of a `replan` solver, made ahead, as layouts, moves and walks."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, islice, pairwise
from typing import TYPE_CHECKING, Literal

import msgspec

from runtime.elastic.measure import Link
from runtime.elastic.messages import Move
from solvers.ir.errors import InvalidInput
from solvers.ir.replan import CurrentPipeline, CurrentState, NewPipeline, ReplanPlan, ReplanProblem
from solvers.ir.schedule import Action
from solvers.ir.solution import Limits, Solution, Watch
from solvers.planner import after_failure, lower_plan, lower_step, plan_ahead, require_valid

if TYPE_CHECKING:
    from solvers.planner import PlanCache

Policy = Literal["auto", "dynamic", "reroute"]
"""What may be decided: whatever the solver prefers; never to reroute; to reroute wherever that is possible."""
Role = Literal["first", "inner", "last", "whole", "spare"]
"""A node's stage in its pipeline."""
AHEAD_S, AT_ONCE_S = 20.0, 5.0
"""Time limits of planning: ahead of failures, and when one has happened that no plan was made for."""


@dataclass(frozen=True)
class Layout:
    """Pipelines on nodes. Those in `failed` are gone, and the survivors of their stages do their passes (rerouting)."""

    pipelines: tuple[CurrentPipeline, ...]
    failed: frozenset[int] = frozenset()

    def runs(self) -> dict[int, tuple[int, int]]:
        """The layers of each node that is there."""
        return {
            node: run
            for pipeline in self.pipelines
            for node, run in zip(pipeline.nodes, pairwise(accumulate(pipeline.layers, initial=0)), strict=True)
            if node not in self.failed
        }

    def role(self, node: int) -> Role:
        """What the node does; `whole`: its pipeline is of one stage, `spare`: it stands by."""
        for pipeline in self.pipelines:
            if node in pipeline.nodes:
                ends = node == pipeline.nodes[0], node == pipeline.nodes[-1]
                return "whole" if all(ends) else "first" if ends[0] else "last" if ends[1] else "inner"
        return "spare"

    def text(self) -> str:
        """Layers per stage and microbatches of each pipeline, such as `3+3+2 ×6, 4+4 ×5, 4+4 ×5`."""
        shown = (f"{'+'.join(map(str, one.layers))} ×{one.microbatches}" for one in self.pipelines)
        gone = f", rerouted around {', '.join(map(str, sorted(self.failed)))}" if self.failed else ""
        return ", ".join(shown) + gone


@dataclass(frozen=True)
class Decided:
    """A layout with what it takes: transfers in rounds, each node's walk, the nodes of each layer that has several.

    `restored`: why peers cannot give all layers, so that everybody begins from a checkpoint; else empty.
    """

    layout: Layout
    moves: tuple[Move, ...]
    walks: Mapping[int, tuple[Action, ...]]
    groups: Mapping[int, tuple[int, ...]]
    restored: str = ""


def require_start(layers: int, microbatches: int, nodes: int, depth: int) -> None:
    """Refuse a start for which there are not enough layers, microbatches, or nodes."""
    data, rest = divmod(nodes, depth)
    if rest or not data:
        raise InvalidInput(f"nodes is {nodes}, which pipelines of {depth} do not divide: choose a multiple of {depth}")
    if layers < depth:
        raise InvalidInput(f"pipeline is {depth}, but the job has {layers} layers: take fewer stages")
    if microbatches < data:
        raise InvalidInput(
            f"the job has {microbatches} microbatches, fewer than the {data} pipelines: every pipeline needs one"
        )


class Planning:
    """Decisions for one job on a changing set of nodes; `running` is the layout that failures would hit."""

    def __init__(self, problem: ReplanProblem, solver: str, link: Link, policy: Policy = "auto") -> None:
        self._problem, self._solver, self._link, self._policy = problem, solver, link, policy
        self._total_us = link.expected_interval_us * problem.nodes  # a constant rate of failures per node
        self._caches: list[PlanCache] = []  # the first one that has a plan is believed

    def start(self, nodes: Sequence[int], depth: int) -> Decided:
        """Alike pipelines of `depth` nodes, layers and microbatches as even as they go, the first ones having more."""
        data = len(nodes) // depth
        pipelines = tuple(
            NewPipeline(layers=_even(self._problem.layers, depth), microbatches=own, nodes=tuple(names))
            for own, names in zip(
                _even(self._problem.microbatches, data), zip(*[iter(nodes)] * depth, strict=True), strict=True
            )
        )
        self._problem = self._with_memory(pipelines)
        plan = ReplanPlan(policy="dynamic", pipelines=pipelines, transfers=None)
        decided = self._decided(self._problem, plan, {}, Layout(()))
        running, limits = self._state(decided.layout, len(nodes)), Limits(time_s=AHEAD_S)
        solvers = [self._solver] if self._policy != "reroute" else ["reroute", self._solver]
        self._caches = [plan_ahead(running, name, limits) for name in solvers]
        return decided

    def _with_memory(self, pipelines: Sequence[NewPipeline]) -> ReplanProblem:
        """A node has room for what the fullest stage of the start needs (formats.md 7.5), unless told otherwise.

        Raises `InvalidInput` where it is told that a node has less.
        """
        problem, most = self._problem, 0
        for one in pipelines:
            for stage, layers in enumerate(one.layers):
                flight = min(len(one.layers) - stage, one.microbatches)
                ends = problem.first_static_bytes * (stage == 0)
                ends += problem.last_static_bytes * (stage == len(one.layers) - 1)
                most = max(most, layers * (problem.layer_static_bytes + flight * problem.layer_activation_bytes) + ends)
        if most > problem.memory_bytes > 0:
            raise InvalidInput(
                f"a node of these {sum(len(one.layers) for one in pipelines)} needs {most} bytes at the start, but "
                f"memory_bytes is {problem.memory_bytes}: allow more, or start with more nodes in deeper pipelines"
            )
        return msgspec.structs.replace(problem, memory_bytes=problem.memory_bytes or most)

    def fill(self, layout: Layout, nodes: int, losses: int, watch: Watch | None = None) -> int:
        """Plans ahead for the next failures of a layout, and for a node that joins; how many are new.

        Ends early where `watch` says so.
        """
        limits, new = Limits(time_s=AHEAD_S), 0
        for cache in self._caches:
            new += cache.fill(self._state(layout, nodes), limits, losses, watch)
            joined = self._state(layout, nodes + 1)
            if cache.plan(joined) is None and not (watch and watch(None, None, 0.0)):
                cache.solve(joined, limits, watch)
                new += 1
        return new

    def decide(self, layout: Layout, nodes: Collection[int]) -> Decided:
        """What these nodes do, having run `layout`, of which some may be gone, while others have come since.

        Raises `InvalidInput` where so few nodes cannot hold the job.
        """
        staged = {node for pipeline in layout.pipelines for node in pipeline.nodes} - layout.failed
        gone = sorted(staged - set(nodes))
        idle = sorted(set(nodes) - staged)
        running = self._state(layout, len(nodes) + len(gone))
        problem = after_failure(running, tuple(gone)) if gone else running
        known = {node for pipeline in layout.pipelines for node in pipeline.nodes}
        fresh = islice((number for number in count() if number not in known), len(idle))
        names = dict(zip(fresh, idle, strict=True))
        solution = self._solved(problem)
        if solution.plan is not None:
            return self._decided(problem, solution.plan, names, layout)
        return self.anew(nodes, solution.reason or "no plan was found")

    def anew(self, nodes: Collection[int], why: str) -> Decided:
        """What these nodes do from a checkpoint, or from the beginning, since peers cannot give every layer (`why`).

        Raises `InvalidInput` where so few nodes cannot hold the job.
        """
        problem = msgspec.structs.replace(
            self._problem, nodes=len(nodes), max_depth=min(self._problem.layers, len(nodes))
        )
        found = self._solved(problem)
        if found.plan is None:
            raise InvalidInput(
                f"{'1 process is' if len(nodes) == 1 else f'{len(nodes)} processes are'} left, but the job needs more "
                f"({'; '.join(dict.fromkeys(filter(None, (why, found.reason))))}): start with more nodes, allow each "
                f"more memory, or choose another solver than {self._solver}"
            )
        free = iter(sorted(nodes))
        pipelines = tuple(
            msgspec.structs.replace(one, nodes=tuple(islice(free, len(one.layers)))) for one in found.plan.pipelines
        )
        plan = msgspec.structs.replace(found.plan, pipelines=pipelines, transfers=None)
        decided = self._decided(problem, plan, {}, Layout(()))
        return Decided(decided.layout, (), decided.walks, decided.groups, restored=why)

    def _solved(self, problem: ReplanProblem) -> Solution[ReplanPlan]:
        """The plan made ahead, or one made now; judged either way."""
        for cache in self._caches:
            solution = cache.solve(problem, Limits(time_s=AT_ONCE_S))
            if solution.plan is not None:
                require_valid(problem, solution.plan, solution.solver)
                break
        return solution

    def _state(self, layout: Layout, nodes: int) -> ReplanProblem:
        pipelines = layout.pipelines
        if self._policy == "dynamic":  # a solver reroutes alike pipelines only, so they are told as unlike ones
            first = msgspec.structs.replace(pipelines[0], microbatches=pipelines[0].microbatches + 1)
            pipelines = (first, *pipelines[1:])
        return msgspec.structs.replace(
            self._problem,
            nodes=nodes,
            max_depth=min(self._problem.layers, nodes),
            current=CurrentState(pipelines=pipelines, failed=tuple(sorted(layout.failed))),
            restart_us=self._link.restart_us,
            bytes_per_s=self._link.bytes_per_s,
            expected_interval_us=self._total_us // nodes,
        )

    def _decided(self, problem: ReplanProblem, plan: ReplanPlan, names: Mapping[int, int], before: Layout) -> Decided:
        """The plan with the nodes' own numbers, lowered."""
        rounds = _rounds(problem, plan, names)
        walks: dict[int, list[Action]] = {}
        groups: dict[int, list[int]] = {}
        for action in lower_step(problem, plan).actions:
            node = _named(int(action.lane.partition(".")[0]), names)
            if isinstance(action.peer, int):
                action = msgspec.structs.replace(action, peer=_named(action.peer, names))
            walks.setdefault(node, []).append(action)
            if action.do == "collective_start":
                groups.setdefault(action.op or 0, []).append(node)
        if plan.policy == "reroute":
            assert problem.current is not None, "only a running layout can be rerouted"
            layout = Layout(before.pipelines, frozenset(problem.current.failed))
        else:
            layout = Layout(tuple(_placed(one, names) for one in plan.pipelines))
        return Decided(
            layout,
            rounds,
            {node: tuple(actions) for node, actions in walks.items()},
            {layer: tuple(sorted(nodes)) for layer, nodes in groups.items()},
        )


def _even(total: int, parts: int) -> tuple[int, ...]:
    share, rest = divmod(total, parts)
    return tuple(share + (number < rest) for number in range(parts))


def _named(node: int, names: Mapping[int, int]) -> int:
    return names.get(node, node)


def _placed(one: NewPipeline, names: Mapping[int, int]) -> CurrentPipeline:
    return CurrentPipeline(
        layers=one.layers,
        nodes=tuple(_named(node, names) for node in one.nodes or ()),
        microbatches=one.microbatches,
    )


def _rounds(problem: ReplanProblem, plan: ReplanPlan, names: Mapping[int, int]) -> tuple[Move, ...]:
    """The plan's transfers in the order of their rounds, as its schedule has them."""
    if not plan.transfers:
        return ()
    sent: Iterable[Action] = (one for one in lower_plan(problem, plan).actions if one.do in ("send", "recv"))
    found: list[Move] = []
    source = -1
    for action in sent:  # a send stands right before its receive
        node = _named(int(action.lane.partition(".")[0]), names)
        if action.do == "send":
            source = node
        else:
            found.append(Move(layer=action.op or 0, source=source, target=node))
    return tuple(found)
