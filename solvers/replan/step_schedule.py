"""One training step of a plan as a schedule: passes, messages, all-reduces, updates, node by node (formats.md 11.9).

The actions of a node stand in an order in which one thread can walk them: messages are sent without waiting for their
receiver, and a receive waits for its message. Pipelines follow 1F1B; a rerouted step follows the estimator's events,
where the survivors of a stage share what its failed nodes did. Transfers before the step are `transfer/lower.py`'s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from solvers.ir.errors import InvalidProblem
from solvers.ir.fields import require
from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.ir.schedule import Action, Do, Schedule
from solvers.replan.estimate.rerouting import rerouted_passes
from solvers.replan.transfer.collectives import in_rounds
from solvers.replan.transfer.owners import Interval, intervals, layer_bytes
from solvers.timeline.pipeline.order import stage_order

Direction = Literal["forward", "backward"]
LANES = ("compute", "out", "in", "comm")


class Pass(NamedTuple):
    """A microbatch of the whole step goes through a stage, in one direction."""

    microbatch: int
    stage: int
    direction: Direction


class Stop(NamedTuple):
    """Where a microbatch is at one stage: the node, and its run of layers."""

    node: int
    layers: Interval


@dataclass
class Step:
    """Who does what: each node's passes in order, each microbatch's way, and each layer's nodes, in order of rounds."""

    passes: dict[int, list[Pass]]
    ways: dict[int, tuple[Stop, ...]]
    owners: dict[int, tuple[int, ...]] = field(default_factory=dict)


def lower_step(problem: ReplanProblem, plan: ReplanPlan) -> Schedule:
    """The step of a valid plan whose stages are mapped to nodes; raises `InvalidProblem` for any other.

    Microbatches are numbered over the whole step, those of the first pipeline first. A pass has an action for each of
    its layers; a layer with several nodes is summed over them by a collective each; each layer ends with an `update`.
    """
    return _schedule(problem, _rerouted(problem) if plan.policy == "reroute" else _dynamic(plan))


def _dynamic(plan: ReplanPlan) -> Step:
    step, first = Step({}, {}), 0
    placed: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for number, pipeline in enumerate(plan.pipelines):
        if pipeline.nodes is None:
            raise InvalidProblem(f"pipelines[{number}].nodes is null: map the stages to nodes before lowering")
        runs = intervals(pipeline.layers)
        way = tuple(Stop(node, run) for node, run in zip(pipeline.nodes, runs, strict=True))
        for stage, node in enumerate(pipeline.nodes):
            ordered = stage_order(stage, len(runs), pipeline.microbatches)
            step.passes[node] = [Pass(first + one.microbatch, stage, one.kind) for one in ordered]
        step.ways |= dict.fromkeys(range(first, first + pipeline.microbatches), way)
        first += pipeline.microbatches
        placed.append((pipeline.layers, pipeline.nodes))
    step.owners = _owners(placed)
    return step


def _rerouted(problem: ReplanProblem) -> Step:
    """The pipelines of `current` go on; failed nodes' passes are done by those that the estimator sends them to."""
    current = problem.current
    if current is None:
        raise InvalidProblem("the plan reroutes, but the problem has no current: give the running pipelines")
    layers, own = current.pipelines[0].layers, current.pipelines[0].microbatches
    alike = all(one.layers == layers and one.microbatches == own for one in current.pipelines)
    require(alike, "the plan reroutes, but the pipelines of current differ: take a plan of policy dynamic")
    gone, runs = set(current.failed), intervals(layers)
    dead = {(n, s) for n, one in enumerate(current.pipelines) for s, node in enumerate(one.nodes) if node in gone}
    placed = [(one.layers, tuple(node for node in one.nodes)) for one in current.pipelines]
    alive = {node for one in current.pipelines for node in one.nodes} - gone
    step = Step({node: [] for node in sorted(alive)}, {})
    stops: dict[int, dict[int, Stop]] = {}
    for one in rerouted_passes(problem, layers, own, dead, len(current.pipelines)):
        node = current.pipelines[one.doer].nodes[one.stage]
        microbatch = one.pipeline * own + one.microbatch
        step.passes[node].append(Pass(microbatch, one.stage, "forward" if one.forward else "backward"))
        stops.setdefault(microbatch, {})[one.stage] = Stop(node, runs[one.stage])
    step.ways = {microbatch: tuple(way[stage] for stage in range(len(runs))) for microbatch, way in stops.items()}
    step.owners = {layer: tuple(n for n in nodes if n in alive) for layer, nodes in _owners(placed).items()}
    return step


def _owners(placed: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> dict[int, tuple[int, ...]]:
    """Each layer's node in every pipeline; the layers in the order of their all-reduces (rounds, first-fit)."""
    starts = in_rounds([layers for layers, _ in placed], 1).starts_us
    found: dict[int, list[int]] = {layer: [] for layer in sorted(range(len(starts)), key=lambda n: (starts[n], n))}
    for layers, nodes in placed:
        for node, run in zip(nodes, intervals(layers), strict=True):
            for layer in range(*run):
                found[layer].append(node)
    return {layer: tuple(nodes) for layer, nodes in found.items()}


def _schedule(problem: ReplanProblem, step: Step) -> Schedule:
    sizes = layer_bytes(problem)
    # Messages are numbered first: whoever receives one names it before the sender has been looked at.
    messages = {one: number for number, one in enumerate(_sent(step.ways))}
    made: list[Action] = []
    following = len(messages)
    for node in sorted(step.passes):
        walk = _Node(node, step, messages, following)
        for one in step.passes[node]:
            walk.go(one)
        walk.finish(sizes)
        made += walk.actions
        following = walk.number
    lanes = tuple(f"{node}.{lane}" for node in sorted(step.passes) for lane in LANES)
    return Schedule(lanes=lanes, actions=tuple(made))


def _sent(ways: Mapping[int, Sequence[Stop]]) -> Iterator[Pass]:
    """Every message by the pass that ends with it."""
    for microbatch, way in sorted(ways.items()):
        for stage in range(len(way) - 1):
            yield Pass(microbatch, stage, "forward")
            yield Pass(microbatch, stage + 1, "backward")


class _Node:
    """The actions of one node as they are made; `latest` is the last one of its compute lane."""

    def __init__(self, node: int, step: Step, messages: Mapping[Pass, int], first: int) -> None:
        self.node, self.step, self.messages, self.number = node, step, messages, first
        self.actions: list[Action] = []
        self.latest: int | None = None

    def go(self, one: Pass) -> None:
        """A pass: what it needs arrives, its layers, what comes of it leaves."""
        way = self.step.ways[one.microbatch]
        onward = 1 if one.direction == "forward" else -1
        before, behind = one.stage - onward, one.stage + onward
        if 0 <= before < len(way):
            message = self.messages[one._replace(stage=before)]
            self._add("in", "recv", None, after=(message,), **_of(one), peer=way[before].node)
        layers = range(*way[one.stage].layers)
        for layer in layers if one.direction == "forward" else reversed(layers):
            came = (self.actions[-1].id,) if self.actions and self.actions[-1].do == "recv" else ()
            self.latest = self._add("compute", "compute", layer, after=came, **_of(one))
        if 0 <= behind < len(way):
            sent, after = self.messages[one], (self.latest or 0,)
            self._add("out", "send", None, sent, after=after, **_of(one), peer=way[behind].node)

    def finish(self, sizes: Sequence[int]) -> None:
        """The sums of the layers that others have too, in the order of their rounds, and an update of each layer."""
        own = [layer for layer, nodes in self.step.owners.items() if self.node in nodes]
        started = {}
        for layer in own:
            if len(self.step.owners[layer]) > 1:
                after = () if self.latest is None else (self.latest,)
                started[layer] = self._add("comm", "collective_start", layer, after=after, bytes=sizes[layer])
        for layer, number in started.items():
            self._add("compute", "collective_wait", layer, after=(number,))
        for layer in sorted(own):
            self._add("compute", "update", layer)

    def _add(self, lane: str, do: Do, op: int | None, number: int | None = None, **more: Any) -> int:
        if number is None:
            number = self.number
            self.number += 1
        self.actions.append(Action(id=number, lane=f"{self.node}.{lane}", do=do, op=op, **more))
        return number


def _of(one: Pass) -> dict[str, Any]:
    return {"microbatch": one.microbatch, "direction": one.direction}
