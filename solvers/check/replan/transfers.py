"""The node mapping and the layer transfers of a `replan` decision (formats.md 7.6 to 7.8)."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import count, islice

from solvers.ir.replan import ReplanPlan, ReplanProblem, Transfer

Holdings = dict[int, set[int]]
"""The layers that each node has or needs."""


def judge_mapping(problem: ReplanProblem, plan: ReplanPlan) -> list[str]:
    """Nodes are alive and used once; with `current` each missing layer comes exactly once from a living owner."""
    violations = _nodes(problem, plan)
    if problem.current is None:
        if plan.transfers:
            violations.append(f"transfers lists {len(plan.transfers)}, but the problem has no current owners of layers")
        return violations
    unmapped = [number for number, pipeline in enumerate(plan.pipelines) if pipeline.nodes is None]
    violations += [
        f"pipelines[{number}].nodes is null, but with current every stage needs a node" for number in unmapped
    ]
    return violations or _transfers(problem, plan)


def _nodes(problem: ReplanProblem, plan: ReplanPlan) -> list[str]:
    violations = []
    failed = set(problem.current.failed) if problem.current is not None else set()
    known = set(held_layers(problem))
    used: set[int] = set()
    for number, pipeline in enumerate(plan.pipelines):
        nodes = pipeline.nodes or ()
        if pipeline.nodes is not None and len(nodes) != len(pipeline.layers):
            violations.append(f"pipelines[{number}] has {len(pipeline.layers)} stages, but nodes lists {len(nodes)}")
        for node in nodes:
            if node in failed:
                violations.append(f"pipelines[{number}] uses node {node}, which has failed")
            if node in used:
                violations.append(f"pipelines[{number}] uses node {node}, which already has a stage")
            used.add(node)
    idle = problem.nodes - len(known)
    strangers = used - known - failed
    if problem.hosts is not None and len(strangers) <= idle:
        violations += _named_otherwise(problem, strangers, idle)
    if len(strangers) > idle:
        listed = sorted(strangers)
        violations.append(f"the pipelines use nodes {listed}, but only {idle} of {problem.nodes} nodes alive were idle")
    return violations


def _named_otherwise(problem: ReplanProblem, strangers: set[int], idle: int) -> list[str]:
    """On hosts a name says where a node stands: idle nodes are the smallest ids that `current` does not list."""
    listed = {node for pipeline in problem.current.pipelines for node in pipeline.nodes} if problem.current else set()
    names = list(islice((node for node in count() if node not in listed), idle))
    return [
        f"the pipelines use node {node}, but the idle nodes are {names}" for node in sorted(strangers.difference(names))
    ]


def _transfers(problem: ReplanProblem, plan: ReplanPlan) -> list[str]:
    """Each layer that a node needs and lacks arrives once, from a living owner; nothing else moves."""
    held, missing = held_layers(problem), missing_layers(problem, plan)
    violations = []
    arrived: set[tuple[int, int]] = set()
    for number, transfer in enumerate(plan.transfers or ()):
        place = f"transfers[{number}]: layer {transfer.layer} from node {transfer.source} to node {transfer.target}"
        if transfer.layer not in held.get(transfer.source, set()):
            violations.append(f"{place}, but the sender is not alive with that layer")
        if transfer.layer not in missing.get(transfer.target, set()):
            violations.append(f"{place}, but the receiver does not lack that layer")
        elif (transfer.layer, transfer.target) in arrived:
            violations.append(f"{place}, where it already arrived by an earlier transfer")
        arrived.add((transfer.layer, transfer.target))
    for node, layers in missing.items():
        for layer in sorted(layers):
            if (layer, node) not in arrived:
                owners = sorted(owner for owner, theirs in held.items() if layer in theirs)
                who = f"held by nodes {owners}" if owners else "held by no node alive"
                violations.append(f"node {node} lacks layer {layer} ({who}), but no transfer brings it")
    return violations


def held_layers(problem: ReplanProblem) -> Holdings:
    """What each node of `current` that is alive holds."""
    held: Holdings = {}
    if problem.current is not None:
        for pipeline in problem.current.pipelines:
            for node, layers in zip(pipeline.nodes, _ranges(pipeline.layers), strict=True):
                if node not in problem.current.failed:
                    held[node] = set(layers)
    return held


def missing_layers(problem: ReplanProblem, plan: ReplanPlan) -> Holdings:
    """What each planned node needs and does not hold."""
    held = held_layers(problem)
    return {
        node: set(layers) - held.get(node, set())
        for pipeline in plan.pipelines
        for node, layers in zip(pipeline.nodes or (), _ranges(pipeline.layers), strict=True)
    }


def slowest_transfer_us(problem: ReplanProblem, transfers: Sequence[Transfer]) -> Fraction:
    """max over nodes of max(time to send, time to receive) at the links' rates, exactly."""
    sent: dict[int, Fraction] = {}
    received: dict[int, Fraction] = {}
    for transfer in transfers:
        size = problem.layer_static_bytes
        size += problem.first_static_bytes if transfer.layer == 0 else 0
        size += problem.last_static_bytes if transfer.layer == problem.layers - 1 else 0
        taken = Fraction(size * 1_000_000, _rate(problem, transfer))
        sent[transfer.source] = sent.get(transfer.source, Fraction(0)) + taken
        received[transfer.target] = received.get(transfer.target, Fraction(0)) + taken
    return max([Fraction(0), *sent.values(), *received.values()])


def _rate(problem: ReplanProblem, transfer: Transfer) -> int:
    """Bytes a second of the link between two nodes."""
    hosts = problem.hosts
    if hosts is not None and transfer.source // hosts.nodes == transfer.target // hosts.nodes:
        return hosts.bytes_per_s
    return problem.bytes_per_s or 1


def _ranges(layers: tuple[int, ...]) -> list[range]:
    """The layers of each stage, in order from layer 0."""
    starts = [sum(layers[:stage]) for stage in range(len(layers))]
    return [range(start, start + count) for start, count in zip(starts, layers, strict=True)]
